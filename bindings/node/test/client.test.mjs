/* The client alone, against a peer that runs nothing (fake.mjs): what is sent, what is made of answers, and that no peer can do more than
 * to have itself refused. */
import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";
import { test } from "node:test";
import * as cloche from "../index.mjs";

const require = createRequire(import.meta.url);
const { Parser } = require("../lib/frames.js");
const { Sandbox, run, runCode, withSandbox } = cloche;
process.env.CLOCHE_BIN = new URL("./fake.mjs", import.meta.url).pathname;
const echo = async (result) => JSON.parse((await result).stdout);
/* The client that is there goes: the next call starts a peer in this mode. */
async function peer(mode) {
	delete process.env.FAKE;
	await assert.rejects(run(["die"]), cloche.SystemFault);
	if (mode) process.env.FAKE = mode;
}

test("both entries are one module", () => {
	assert.equal(require("../index.js").Sandbox, Sandbox);
	assert.deepEqual(Object.keys(require("../index.js")).sort(), Object.keys(cloche).filter((k) => k !== "default").sort());
	assert.equal(cloche.version, require("../package.json").version);
});

test("options are sent under their names, and nothing else is", async () => {
	const sent = async (options) => JSON.parse((await withSandbox(options, (s) => s.notes))[0]);
	assert.deepEqual(await sent({}), {});
	assert.deepEqual(await sent({ memoryMb: 5, workspaceMaxBytes: null, image: undefined, onStdout: () => {} }), { memory_mb: 5, workspace_max_bytes: null });
	assert.deepEqual(await sent({ env: { myKey: "a", __proto__: null }, tmpfs: { "/aB": "1m" }, rlimits: { openFiles: 5 } }),
		{ env: { myKey: "a" }, tmpfs: { "/aB": "1m" }, rlimits: { open_files: 5 } });
	assert.deepEqual(await echo(withSandbox((s) => s.run(["a", "", "ü\n"], { timeoutS: 1.5, env: { aB: "c" }, cwd: "/", pty: [24, 80], trackFiles: false, stdin: null }))),
		{ sandbox: 4, timeout_s: 1.5, env: { aB: "c" }, cwd: "/", pty: { rows: 24, cols: 80 }, track_files: false, bytes: 7, argv: ["a", "", "ü\n"], n: 1 });
});

test("what JSON would change is refused by name, before it is sent", async () => {
	const names = (e, option) => e instanceof cloche.OptionError && e.option === option && e.allowed.length > 0 && e.message.length < 250 && !e.message.includes("\n");
	for (const [options, option] of [[{ memoryMb: NaN }, "memoryMb"], [{ cpus: Infinity }, "cpus"], [{ pids: 5n }, "pids"], [{ pids: 2 ** 53 }, "pids"], [{ env: new Map() }, "env"],
		[{ env: { a: "\ud800" } }, "env"], [{ env: { "a\0": "" } }, "env"], [{ setup: "a\0b" }, "setup"], [{ user: Symbol("x") }, "user"],
		[{ capDrop: [undefined] }, "capDrop"], [{ memory_mb: 5 }, "memory_mb"], [{ tmpfs: () => 1 }, "tmpfs"], [{ mounts: new Date(0) }, "mounts"]])
		assert.throws(() => new Sandbox(options), (e) => names(e, option), option);
	for (const options of [null, 5, "host", []]) assert.throws(() => new Sandbox(options), (e) => names(e, "options"));
	const wrong = (promise, option) => assert.rejects(promise, (e) => names(e, option), option);
	await wrong(run("ls -l"), "argv");
	await wrong(run(["a", 5]), "argv");
	await wrong(run(["a\0b"]), "argv");
	await wrong(runCode(5), "code");
	await wrong(runCode("\udc00"), "code");
	await wrong(run(["a"], { stdin: 5 }), "stdin");
	await wrong(run(["a"], { stdin: true }), "stdin");
	await wrong(run(["a"], { signal: {} }), "signal");
	await wrong(run(["a"], { onStdout: "x" }), "onStdout");
	await wrong(run(["cat"], { stdin: [5] }), "stdin");
	await wrong(run(["cat"], { stdin: ["\ud800"] }), "stdin");
	await wrong(withSandbox((s) => s.run(["a"], { timeout: 5 })), "timeout");
	await wrong(withSandbox((s) => s.run(["a"], { timeoutS: NaN })), "timeoutS");
	await wrong(withSandbox((s) => s.run(["a"], null)), "options");
	await wrong(withSandbox((s) => s.writeFile("a", 5)), "data");
	await assert.rejects(withSandbox({ env: { a: "x".repeat(70000) } }, () => 1), cloche.TooLarge);
	for (const options of [null, 5, []]) await wrong(run(["a"], options), "options");
	await wrong(withSandbox({}), "work");
});

test("the program's errors are typed, and name options as they are written here", async () => {
	await assert.rejects(run(["a"], { memoryMb: 1 }), (e) => e instanceof cloche.OptionError && e instanceof cloche.SandboxError && e.name === "OptionError" &&
		e.option === "memoryMb" && e.allowed === "8 and more" && e.message === "memoryMb: 1 is too little");
	await assert.rejects(run(["a"], { mounts: { "/etc": "/x" } }), (e) => e instanceof cloche.MountRefused && e.rule === "system");
	await withSandbox(async (s) => {
		await assert.rejects(s.stat("a"), cloche.NotFound);
		await assert.rejects(s.writeFile("../x", ""), cloche.PathRefused);
		await assert.rejects(s.fork(), cloche.Unsupported);
	});
});

test("a result has every field, and its accessors", async () => {
	const fault = { type: "oom", message: "m", filled_by: "tmpfs" };
	const r = await runCode([
		{ event: "output", stream: "stdout", payload: "\ufeffa\u00e9" }, { event: "output", stream: "stderr", payload: "e" },
		{ event: "files", files: [{ path: "a_b", change: "renamed", size: 1, from: "c_d" }] }, { event: "note", text: "n" },
		{ event: "denied", denied: { kind: "read", allow_with: "-v" } }, { event: "unheard_of" },
		{ event: "done", outcome: { exit_code: 137, fault, duration_ms: 2, results: [{ "text/plain": "t", "image/png": "AAE=" }], limits: { file_size: { rung: "rlimit" } }, __proto__: 5 } },
	].map((f) => JSON.stringify(f)).join("\n"));
	assert.equal(r.stdout, "\ufeffa\u00e9");
	assert.deepEqual([...r.stdoutBytes], [0xef, 0xbb, 0xbf, 0x61, 0xc3, 0xa9]);
	assert.ok(!Buffer.isBuffer(r.stdoutBytes));
	assert.equal(r.codeStderr, "e");
	assert.deepEqual(r.files, [{ path: "a_b", change: "renamed", size: 1, previous: "c_d" }]);
	assert.deepEqual([r.runtimeNotes, r.denied[0].allowWith, r.exitCode, r.success, r.signal], [["n"], "-v", 137, false, null]);
	assert.deepEqual(r.fault, { type: "oom", message: "m", filledBy: "tmpfs" });
	assert.equal(r.limits.file_size.rung, "rlimit");
	assert.deepEqual([r.results[0].text, [...r.results[0].png], r.results[0].html, r.results[0].formats()], ["t", [0, 1], null, ["text/plain", "image/png"]]);
	assert.throws(() => r.raiseForFault(), (e) => e instanceof cloche.FaultError && e.fault === r.fault && e.result === r && e.message === "oom: m");
	const good = await run(["a"]);
	assert.ok(good.success && good.raiseForFault() === good);
});

test("payloads larger than a frame go and come in parts", async () => {
	assert.equal((await echo(run(["x".repeat((3 << 20) + 5)]))).n, 4);
	assert.equal((await echo(run(["x".repeat((1 << 20) - 1)]))).n, 1);
	await withSandbox(async (s) => {
		const bytes = await s.readFile("5000000");
		assert.ok(bytes.length === 5000000 && bytes.every((b) => b === 7) && !Buffer.isBuffer(bytes));
		assert.equal((await s.listFiles())[0].mtimeNs, 1);
	});
});

test("input of every kind arrives whole", async () => {
	const big = "0123456789".repeat(300000);
	async function* pieces() { yield "a"; await sleep(1); yield new Uint8Array([98]); }
	for (const [stdin, want] of [["", ""], ["abc", "abc"], [big, big], [new TextEncoder().encode(big), big], [["a", "b"], "ab"], [pieces(), "ab"],
		[Readable.from(["a", Buffer.from("b")]), "ab"], [new Blob(["ab"]).stream(), "ab"]])
		assert.equal((await run(["cat"], { stdin })).stdout, want);
	async function* wrong() { yield "a"; throw new RangeError("of the source"); }
	await assert.rejects(run(["cat"], { stdin: wrong() }), RangeError);
});

test("a call that ends does not wait for its input's source", async () => {
	const endless = new Readable({ read() {} });
	let returned = false;
	const idle = { [Symbol.asyncIterator]: () => ({ next: () => new Promise(() => {}), return: async () => { returned = true; return { done: true }; } }) };
	assert.ok((await run(["a"], { stdin: endless })).success);
	assert.ok((await run(["a"], { stdin: idle })).success);
	assert.ok(endless.destroyed && returned);
});

test("live output is never dropped, in order, however slow the reader is", async () => {
	let n = 0;
	const r = await run(["live", "5000000"], { async onStdout(piece) { n += piece.length; if (n % 7 === 0) await sleep(1); assert.ok(!Buffer.isBuffer(piece)); } });
	assert.deepEqual([n, r.stdout], [5000000, "5000000"]);
});

test("what a callback throws is the caller's, behind the call; it is not called again", async () => {
	let calls = 0;
	const bad = () => { calls++; throw new RangeError("of the callback"); };
	await assert.rejects(run(["live", "500000"], { onStdout: bad }), RangeError);
	assert.equal(calls, 1);
	await assert.rejects(run(["live", "500000"], { onStdout: async () => { throw new RangeError("later"); } }), RangeError);
	await withSandbox({ onStdout: bad }, async (s) => {
		assert.equal((await s.run(["live", "5"], { onStdout: null })).stdout, "5");
		await assert.rejects(s.run(["live", "5"]), RangeError);
	});
});

test("one in the background", async () => {
	await withSandbox(async (s) => {
		const call = await s.start(["x"], { stream: true });
		const end = call.wait(), seen = [];
		for await (const { stream, data } of call) seen.push(stream, Buffer.from(data).toString());
		assert.deepEqual(seen, ["stdout", "one"]);
		assert.equal((await end).stdout, "all");
		assert.equal(call.wait(), end);
		const plain = await s.start(["x"]);
		await assert.rejects(plain[Symbol.asyncIterator]().next(), (e) => e instanceof cloche.OptionError && e.option === "stream" && e.allowed === "true");
		assert.equal(plain.stdin, null);
		await plain.kill();
		if (Symbol.asyncDispose) await (await s.start(["x"]))[Symbol.asyncDispose]();
	});
});

test("an AbortSignal ends the call, and is told when the box is gone", async () => {
	const reason = new Error("why");
	await assert.rejects(run(["a"], { signal: AbortSignal.abort(reason) }), (e) => e.name === "AbortError" && e.code === "ABORT_ERR" && e.cause === reason && e.result === null);
	for (const what of [(signal) => run(["hang"], { signal }), (signal) => withSandbox((s) => s.run(["hang"], { signal }))]) {
		const abort = new AbortController(), before = Date.now();
		setTimeout(() => abort.abort(reason), 300); // by then it runs, on a busy machine too
		await assert.rejects(what(abort.signal), (e) => e instanceof cloche.AbortError && e.result.fault.type === "cancelled");
		assert.ok(Date.now() - before >= 319, "rejected before the answer to cancel");
	}
	const abort = new AbortController();
	setTimeout(() => abort.abort(), 30);
	await assert.rejects(run(["a"], { image: "slow", signal: abort.signal }), (e) => e.name === "AbortError" && e.result === null);
	// A call that has ended is not asked to be cancelled.
	const late = new AbortController();
	await run(["a"], { signal: late.signal });
	late.abort();
});

test("a sandbox that is closed says so; withSandbox closes it however the work ends", async () => {
	let kept;
	await assert.rejects(withSandbox(async (s) => { kept = s; throw new RangeError("of the work"); }), RangeError);
	await assert.rejects(kept.run(["a"]), cloche.Closed);
	await kept.close();
	await new Sandbox().close();
});

test("200 calls at once, each its own answer", async () => {
	await withSandbox(async (s) => {
		const all = await Promise.all(Array.from({ length: 200 }, (_, i) => echo(s.run([String(i)]))));
		assert.deepEqual(all.map((r) => r.argv[0]), Array.from({ length: 200 }, (_, i) => String(i)));
	});
});

for (const [mode, error, text] of [
	["garbage", "ProtocolError"], ["array", "ProtocolError"], ["number", "ProtocolError"], ["text", "ProtocolError"], ["long", "ProtocolError"],
	["endless", "ProtocolError"], ["deep", "ProtocolError"], ["bytes", "ProtocolError"], ["negative", "ProtocolError"], ["fraction", "ProtocolError"],
	["words", "ProtocolError"], ["stranger", "ProtocolError"], ["nocall", "ProtocolError"], ["noevent", "ProtocolError"], ["badutf", "ProtocolError"],
	["badfatal", "ProtocolError"], ["nothing", "ProtocolError"], ["newer", "ProtocolError"], ["proto", "ProtocolError"],
	["fatal", "SystemFault", /no descriptors/], ["refused", "ProtocolError", /cloche 9\.0\.0 speaks 2 to 3/], ["old", "Unsupported", /is cloche 0\.0\.9; this package, .*, needs/],
	["verb", "SystemFault", /unknown verb serve; this package, .*, needs a cloche/], ["killed", "SystemFault", /ended by SIGKILL/]])
	test(`a peer is refused by name: ${mode}`, async () => {
		await peer(mode);
		await assert.rejects(run(["a"]), (e) => e instanceof cloche.SandboxError && e.name === error && (text ?? /fake\.mjs/).test(e.message));
		assert.equal({}.polluted, undefined);
		delete process.env.FAKE;
		assert.ok((await run(["a"])).success, "the next one is asked");
	});

test("a program that lacks something is told so by name", async () => {
	await peer("few");
	await assert.rejects(withSandbox((s) => s.fork()), (e) => e instanceof cloche.Unsupported && /cloche 99\.0\.0, has no fork/.test(e.message));
	await peer();
});

test("no program, and one that is none", async () => {
	const { CLOCHE_BIN: fake, PATH } = process.env;
	for (const [bin, error] of [["/nonexistent/cloche", "Unsupported"], ["/", "Unsupported"], ["/bin/cat", "SystemFault"], ["/bin/true", "SystemFault"], ["/usr/bin/yes", "ProtocolError"]]) {
		await assert.rejects(run(["die"]), cloche.SystemFault);
		process.env.CLOCHE_BIN = bin;
		await assert.rejects(run(["a"]), (e) => e.name === error && e.message.includes(bin), bin);
		process.env.CLOCHE_BIN = fake;
	}
	await peer();
	delete process.env.CLOCHE_BIN;
	process.env.PATH = "/nonexistent";
	await assert.rejects(run(["a"]), (e) => e.name === "Unsupported" && /CLOCHE_BIN/.test(e.message));
	Object.assign(process.env, { CLOCHE_BIN: fake, PATH });
});

test("elsewhere than on Linux: one line", async () => {
	await peer();
	const { platform } = process;
	Object.defineProperty(process, "platform", { value: "darwin" });
	await assert.rejects(run(["a"]), (e) => e.name === "Unsupported" && /needs Linux/.test(e.message) && !e.message.includes("\n"));
	Object.defineProperty(process, "platform", { value: platform });
});

test("the death of the peer ends what waits, and its sandboxes; the next call starts another", async () => {
	await withSandbox(async (s) => {
		const hang = s.run(["hang"]), call = await s.start(["x"], { stream: true });
		await assert.rejects(s.run(["die"]), (e) => e instanceof cloche.SystemFault && /SIGKILL/.test(e.message));
		await assert.rejects(hang, cloche.SystemFault);
		for await (const piece of call) assert.ok(piece); // ends
		await assert.rejects(call.wait(), cloche.Closed);
		await assert.rejects(s.run(["a"]), cloche.Closed);
	});
	assert.ok((await run(["a"])).success);
});

test("a child of the peer that keeps its pipes open does not hide its death", async () => {
	await peer("child");
	await assert.rejects(run(["die"]), cloche.SystemFault);
	await peer();
});

/* Noise, made anew each time from a seed that is told. */
function random(seed) {
	let x = seed | 1;
	return (n) => { x ^= x << 13; x ^= x >>> 17; x ^= x << 5; return (x >>> 0) % n; };
}
const seed = Number(process.env.FUZZ_SEED ?? Date.now() & 0xffff), rounds = Number(process.env.FUZZ_ROUNDS ?? 4000);
const frames = ['{"id":1,"event":"done","bytes":5}\nhello', '{"call":1,"event":"ended"}\n', '{"id":2,"event":"output","stream":"stdout","bytes":3}\nabc',
	'{"event":"fatal","error":{"type":"x","message":"y"}}\n', '{"a":[[[[]]]],"\\u0000":null}\n'];

test(`any bytes are frames or a ProtocolError (seed ${seed})`, () => {
	const next = random(seed);
	for (let round = 0; round < rounds; round++) {
		let bytes = Buffer.from(Array.from({ length: 1 + next(4) }, () => frames[next(frames.length)]).join(""));
		for (let n = next(4); n > 0; n--) bytes[next(bytes.length)] = next(2) ? next(256) : '{}[]":,\n0919e-'.charCodeAt(next(14));
		let taken = 0;
		const parser = new Parser((frame, payload) => {
			assert.ok(typeof frame === "object" && payload.length === frame.bytes);
			taken += payload.length;
		});
		try {
			while (bytes.length) {
				const n = 1 + next(bytes.length);
				parser.push(bytes.subarray(0, n));
				bytes = bytes.subarray(n);
			}
		} catch (e) { assert.equal(e.name, "ProtocolError"); }
		assert.ok(taken <= 20);
	}
});

test(`any answers are a result or a SandboxError (seed ${seed})`, async () => {
	const next = random(seed + 1);
	const values = [null, 0, -1, 1e300, true, "", "x", [], {}, [null], { type: 5 }, { message: "m" }, { type: "oom", message: "m" }];
	const any = () => values[next(values.length)];
	const keys = ["outcome", "error", "files", "denied", "text", "stream", "fault", "sandbox", "call", "results"];
	for (let round = 0; round < rounds / 100; round++) {
		const answers = Array.from({ length: next(4) }, () => {
			const frame = { event: ["started", "stdout", "output", "files", "denied", "note", "ended", "data", "x"][next(9)] };
			for (let n = next(3); n > 0; n--) frame[keys[next(keys.length)]] = any();
			if (next(2)) frame.payload = "xyz";
			return frame;
		});
		answers.push({ event: "done", outcome: next(2) ? any() : { fault: any(), results: any(), exit_code: any(), usage: any() }, ...(next(8) ? {} : { error: any() }) });
		const code = answers.map((f) => JSON.stringify(f)).join("\n");
		try {
			const r = await runCode(code, { onStdout: () => {} });
			assert.ok(r instanceof cloche.ExecutionResult && typeof r.success === "boolean", code);
		} catch (e) { assert.ok(e instanceof cloche.SandboxError, `${e.stack}\n${code}`); }
	}
});

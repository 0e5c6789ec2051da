#!/usr/bin/env node
/* A peer for the client's tests, in place of `cloche serve`: it answers what is asked without running anything, or, as FAKE says, badly.
 *
 * Code that is given to run_code is a list of JSON frames, one a line, to answer with (their id is filled in). */
import { spawn } from "node:child_process";
import { writeSync } from "node:fs";

const mode = process.env.FAKE ?? "good";
const put = (frame, payload = "") => {
	const bytes = Buffer.from(payload);
	let all = Buffer.concat([Buffer.from(JSON.stringify(bytes.length ? { ...frame, bytes: bytes.length } : frame) + "\n"), bytes]);
	while (all.length) {
		try { all = all.subarray(writeSync(1, all)); } catch (e) { if (e.code !== "EAGAIN") process.exit(0); }
	}
};
const OUTCOME = { exit_code: 0, signal: null, fault: null, duration_ms: 1, truncated: false, stdout_cut: null, stderr_cut: null, results: [], files_cut: 0,
	usage: { cpu_user_us: 1, memory_peak_bytes: null }, limits: { open_files: { requested: 1, effective: 1, rung: "rlimit", enforced: true } },
	image: null, events: { pids_max: 0 } };
const raw = {
	silence: () => {}, garbage: "\x00\xff{{{\n", array: "[1,2]\n", number: "7\n", text: '{"event": "done"\n', long: "x".repeat(70000), endless: null,
	deep: `${'{"a":'.repeat(500)}1${"}".repeat(500)}\n`, bytes: '{"id":1,"event":"done","bytes":99999999}\n', negative: '{"id":1,"event":"done","bytes":-1}\n',
	fraction: '{"id":1,"event":"done","bytes":1.5}\n', words: '{"id":1,"event":"done","bytes":"12"}\n', stranger: '{"id":77,"event":"done"}\n',
	nocall: '{"call":5,"event":"stdout"}\n', noevent: '{"id":1}\n', badutf: Buffer.from([0x7b, 0xff, 0x7d, 0x0a]), badfatal: '{"event":"fatal","error":3}\n',
	fatal: '{"event":"fatal","error":{"type":"system","message":"no descriptors"}}\n', proto: '{"__proto__":{"polluted":1},"id":1,"event":"done","protocol":1}\n',
	nothing: '{"id":1,"event":"done"}\n', newer: '{"id":1,"event":"done","protocol":2,"version":"9.0.0","features":[]}\n',
	old: '{"id":1,"event":"done","protocol":1,"version":"0.0.9","features":["run"]}\n',
	few: '{"id":1,"event":"done","protocol":1,"version":"99.0.0","features":["run"]}\n',
	refused: '{"id":1,"event":"done","error":{"type":"protocol","message":"cloche 9.0.0 speaks 2 to 3, cloche-node/0.1.0 speaks 1"}}\n',
};
if (mode === "verb") {
	process.stderr.write("cloche: unknown verb serve\n");
	process.exit(2);
}
if (mode === "endless") for (;;) put({}, "x".repeat(1 << 20));
if (mode === "killed") process.kill(process.pid, "SIGKILL");
if (mode === "child") spawn("sleep", ["3"], { stdio: "inherit", detached: true }); // keeps the pipes

let input = Buffer.alloc(0), frame = null;
let sandboxes = 0;
const parts = new Map(), calls = new Map();
const asked = [];
process.stdin.on("data", (chunk) => {
	input = Buffer.concat([input, chunk]);
	for (;;) {
		if (!frame) {
			const end = input.indexOf(10);
			if (end < 0) return;
			frame = JSON.parse(input.subarray(0, end));
			input = input.subarray(end + 1);
		}
		const n = frame.bytes ?? 0;
		if (input.length < n) return;
		const payload = input.subarray(0, n), whole = frame;
		input = input.subarray(n);
		frame = null;
		take(whole, payload);
	}
});
process.stdin.on("end", () => process.exit(0));

function take(frame, payload) {
	asked.push(frame.op);
	const had = parts.get(frame.id) ?? { frame, payloads: [] };
	had.payloads.push(Buffer.from(payload));
	if (frame.more) return parts.set(frame.id, had);
	parts.delete(frame.id);
	answer(had.frame, Buffer.concat(had.payloads), had.payloads.length);
}
function answer({ id, op, ...f }, payload, n) {
	const done = (fields = {}) => put({ id, event: "done", ...fields });
	const fail = (type, message, more = {}) => done({ error: { type, message, ...more } });
	if (mode in raw && (op === "hello" || mode === "few" && op !== "open")) return typeof raw[mode] === "function" ? raw[mode]() : writeSync(1, raw[mode]);
	switch (op) {
	case "hello": return done({ protocol: 1, version: "99.0.0", features: ["run", "run_code", "background", "files", "snapshot", "fork", "setup", "port", "pty"] });
	case "open":
		if (f.options.memory_mb === 1) return fail("option", "memory_mb: 1 is too little", { option: "memory_mb", allowed: "8 and more" });
		if (f.options.mounts) return fail("mount_refused", "/etc is not shared", { rule: "system" });
		if (f.options.image === "slow") return calls.set(id, () => fail("cancelled", "cancelled"));
		return done({ sandbox: ++sandboxes, fault: null, image: { name: "x", id: "y", manifest: null }, workspace: f.options.workspace ?? null, notes: [JSON.stringify(f.options)] });
	case "run": {
		const argv = payload.toString().split("\0").slice(0, -1);
		put({ id, event: "started" });
		if (argv[0] === "hang") return calls.set(id, () => put({ id, event: "done", outcome: { ...OUTCOME, exit_code: 130, fault: { type: "cancelled", message: "cancelled" } } }));
		if (argv[0] === "die") process.kill(process.pid, "SIGKILL");
		if (argv[0] === "cat") return calls.set(id, { chunks: [], end(text) {
			for (let at = 0; at < text.length; at += 1 << 20) put({ id, event: "output", stream: "stdout" }, text.subarray(at, at + (1 << 20)));
			done({ outcome: OUTCOME });
		} });
		if (argv[0] === "live") return calls.set(id, live(id, Number(argv[1]), (n) => { put({ id, event: "output", stream: "stdout" }, `${n}`); done({ outcome: OUTCOME }); }));
		put({ id, event: "output", stream: "stdout" }, JSON.stringify({ ...f, argv: payload.length < 65536 ? argv : null, n }));
		return done({ outcome: OUTCOME });
	}
	case "run_code":
		for (const line of payload.toString().split("\n").filter(Boolean)) {
			const { payload: text, ...given } = JSON.parse(line);
			put({ id, ...given }, text);
		}
		return;
	case "start":
		calls.set(id, () => put({ call: id, event: "ended" }));
		done();
		return f.stream ? put({ call: id, event: "stdout" }, "one") : undefined;
	case "wait":
		put({ call: f.call, event: "ended" });
		put({ id, event: "output", stream: "stdout" }, "all");
		return done({ outcome: OUTCOME });
	case "ack": return calls.get(f.call)?.ack?.(f.size);
	case "cancel":
		if (!calls.has(f.call)) return fail("not_found", "no such call");
		calls.get(f.call)();
		return setTimeout(() => done(), 20);
	case "stdin": {
		const call = calls.get(f.call);
		if (!call) return fail("not_found", "no such call");
		call.chunks.push(payload);
		done({ size: payload.length });
		return f.eof ? call.end(Buffer.concat(call.chunks)) : undefined;
	}
	case "write_file": return f.path === "../x" ? fail("path", "../x leaves the workspace") : done({ size: payload.length });
	case "read_file":
		for (let at = 0; at < Number(f.path); at += 1 << 20) put({ id, event: "data" }, Buffer.alloc(Math.min(1 << 20, Number(f.path) - at), 7));
		return done({ size: Number(f.path) });
	case "list_files": put({ id, event: "files", files: [{ path: "a", type: "file", size: 1, mode: 420, mtime_ns: 1 }] }); return done({ count: 1 });
	case "stat": return fail("not_found", "no such file");
	case "info": return done({ options: { memory_mb: 5, env: { A_B: "c" }, rlimits: { open_files: 5 } }, image: null, limits: {}, asked });
	case "close": return done();
	default: return fail("unsupported", `no ${op}`);
	}
}
/* Prints `total` bytes live, at most a MiB of them not acknowledged. */
function live(id, total, end) {
	let sent = 0, free = 1 << 20;
	const go = () => {
		while (sent < total && free > 0) {
			const n = Math.min(65536, free, total - sent);
			put({ id, event: "stdout" }, Buffer.alloc(n, 65 + (sent >> 16) % 26));
			sent += n;
			free -= n;
		}
		if (sent === total) { total = -1; end(sent); }
	};
	setImmediate(go);
	return { ack(n) { free += n; go(); } };
}

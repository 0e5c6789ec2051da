"use strict";
/* One call: its request, what it prints live, its input, its end by an AbortSignal, its result. */
const { AbortError, OptionError } = require("./errors.js");
const { wrong, unicode, text, plain, snake, MAX_PAYLOAD } = require("./frames.js");
const { Live } = require("./client.js");
const { Kept } = require("./result.js");

const NOTHING = new Uint8Array(0);

/* Options of a method: those that are named, and no other. */
function only(options, names, what) {
	if (typeof options !== "object" || options === null) throw wrong("options", "an object", options);
	for (const option of Object.keys(options))
		if (!names.includes(option)) throw new OptionError(`${what} has no option ${option}`, { option, allowed: names.join(", ") });
	return options;
}
const absent = (value) => value === undefined || value === null;
/* Fields of a request; and those of them that were given. */
const named = (given) => Object.fromEntries(Object.entries(given).map(([k, v]) => [snake(k), plain(v ?? null, k)]));
const fields = (given) => named(Object.fromEntries(Object.entries(given).filter(([, v]) => !absent(v))));
/* Words of a command, as a payload: each ended by NUL. */
function words(argv) {
	if (!Array.isArray(argv) || argv.length === 0) throw wrong("argv", 'a list of words, such as ["sh", "-c", "ls | wc -l"]', argv);
	return Buffer.from(argv.map((word) => `${text(word, "argv")}\0`).join(""));
}
/* Bytes of what may be given as content. */
function content(piece, option) {
	return piece instanceof Uint8Array ? piece : Buffer.from(unicode(piece, option, "a string of Unicode or a Uint8Array"));
}
/* What a call may be given to read; `true`, when its process is written to. */
function checkInput(stdin, mayWrite) {
	if (absent(stdin) || stdin === false || (stdin === true && mayWrite)) return;
	const allowed = "a string of Unicode, a Uint8Array, or an iterable of those";
	if (typeof stdin === "string") unicode(stdin, "stdin", allowed);
	else if (!stdin[Symbol.asyncIterator] && !stdin[Symbol.iterator]) throw wrong("stdin", allowed, stdin);
}
/* The size of a terminal. */
const terminal = (pty) => (Array.isArray(pty) ? { rows: pty[0], cols: pty[1] } : pty === true ? { rows: 24, cols: 80 } : pty || null);

function throwIfAborted(signal, result) {
	if (signal?.aborted) throw new AbortError(signal, result);
}
/* Ends a request that has no answer yet; resolves when nothing of it is left. */
const cancel = (client, id) => new Promise((resolve) => { resolve(client.request("cancel", { call: id }).done); }).catch(() => {});

class Task {
	#client;
	#options; // of call.d.ts' CallOptions, and `stream`
	#kept = new Kept();
	#delivered = null;
	#gone = null; // of a cancel
	#wrong = null; // what a callback or the source of the input has thrown
	#stopInput = null;
	live = null; // what it prints, when somebody is to get it as it comes
	id = 0;

	/* `owner`: a sandbox, which is not forgotten while this is not. */
	constructor(client, op, options, owner) {
		const { onStdout, onStderr, onProgress, signal, stdin, stream } = options;
		for (const [option, given] of Object.entries({ onStdout, onStderr, onProgress }))
			if (!absent(given) && typeof given !== "function") throw wrong(option, "a function, or null", given);
		if (!absent(signal) && typeof signal.addEventListener !== "function") throw wrong("signal", "an AbortSignal", signal);
		checkInput(stdin, op === "start");
		Object.assign(this, { op, owner });
		this.#client = client;
		this.#options = options;
		if (onStdout || onStderr || stream) this.live = new Live(client);
	}

	/* Sends the request that begins it; returns the promise of its last frame. */
	begin(given, { payload, most } = {}) {
		const { timeoutS, env, cwd, pty, trackFiles, stdin, signal, stream } = this.#options;
		const body = { ...given, ...fields({ timeoutS, env, cwd, trackFiles, pty: terminal(pty), stream: stream || Boolean(this.live) || null }) };
		if (!absent(stdin) && stdin !== false) body.stdin = true;
		throwIfAborted(signal);
		const { id, done } = this.#client.request(this.op, body, { payload, most, onEvent: this.#event, onCall: this.op === "start" ? this.#event : undefined });
		this.id = id;
		signal?.addEventListener("abort", this.cancel, { once: true });
		if (this.live) this.live.call = id;
		if (this.live && !stream) this.#delivered = this.#deliver();
		return done;
	}
	/* Both. */
	async run(given, extra, made) { return this.finish(this.begin(given, extra), made); }
	/* What it has come to, when `done` has; or the reason why there is nothing. */
	async finish(done, made = (frame) => this.#kept.result(frame.outcome)) {
		const { signal } = this.#options;
		let result = null, error = null;
		try { result = made(await done); } catch (e) { error = e; }
		this.#end();
		await this.#delivered;
		await this.#gone;
		if (this.#gone) throwIfAborted(signal, result);
		if (this.#wrong) throw this.#wrong.error;
		if (error) throw error;
		return result;
	}
	/* The end of one in the background. */
	wait(most) { return this.finish(this.ask("wait", {}, { onEvent: this.#event, most })); }
	/* Resolves when the box is gone. */
	cancel = () => this.#gone ??= cancel(this.#client, this.id);
	async ask(op, given, extra) { return this.#client.request(op, { call: this.id, ...named(given) }, extra).done; }

	#event = (frame, payload) => {
		if (frame.event === "started") this.feed();
		else if (frame.event === "stdout" || frame.event === "stderr") this.live?.push(frame.event, payload);
		else if (frame.event === "ended") this.#end();
		else if (frame.event === "progress") this.#progress(frame);
		else this.#kept.add(frame, payload);
	};
	#end() {
		this.#options.signal?.removeEventListener("abort", this.cancel);
		this.live?.end();
		this.#stopInput?.();
	}
	#progress({ phase, text = null, size = null, total = null }) {
		try { this.#options.onProgress?.({ phase, text, size, total }); } catch (error) { this.#wrong ??= { error }; }
	}
	/* Calls back with each piece, one after the other; what a callback throws is kept for the end, and nothing is called again. */
	async #deliver() {
		for (let piece; (piece = await this.live.next()); this.live.took(piece)) {
			try {
				if (!this.#wrong) await this.#options[piece.stream === "stdout" ? "onStdout" : "onStderr"]?.(piece.data);
			} catch (error) { this.#wrong ??= { error }; }
		}
	}

	/* Sends the input that was given, as fast as it is taken. */
	async feed() {
		const given = this.#options.stdin;
		if (absent(given) || typeof given === "boolean" || this.#stopInput) return;
		const pieces = typeof given === "string" || given instanceof Uint8Array ? [given] : given;
		const steps = (pieces[Symbol.asyncIterator] ?? pieces[Symbol.iterator]).call(pieces);
		let over = false;
		// Who waits for the next piece would do so for ever once the call has ended: a stream is closed, as `for await` would.
		this.#stopInput = () => {
			if (!over && typeof given.destroy === "function") given.destroy();
			else if (!over) Promise.resolve(steps.return?.()).catch(() => {});
			over = true;
		};
		try {
			for (let step; !over && !(step = await steps.next()).done;)
				if (!over && !await this.write(content(step.value, "stdin"), false)) this.#stopInput();
			if (!over) await this.write(NOTHING, true);
		} catch (error) {
			if (!over) this.#wrong ??= { error };
			this.cancel();
		}
		over = true;
	}
	/* Did the command take all of it? Not when it has closed its input, or has ended. */
	async write(bytes, eof) {
		for (let at = 0; at < bytes.length || (eof && at === 0); at += MAX_PAYLOAD) {
			const payload = bytes.subarray(at, at + MAX_PAYLOAD);
			try {
				const { size } = await this.ask("stdin", { eof }, { payload });
				if (size < payload.length) return false;
			} catch { return false; }
		}
		return true;
	}
}

/* A command in the background. */
class Process {
	#task;
	#most;
	#result = null;
	#line = Promise.resolve(); // of the input: one request at a time

	constructor(task, stdin, most) {
		this.#task = task;
		this.#most = most;
		this.stdin = stdin === true ? { write: (data) => this.#put(content(data, "data"), false), end: () => this.#put(NOTHING, true) } : null;
	}
	wait() { return this.#result ??= this.#task.wait(this.#most); }
	async kill() { await this.#task.cancel(); }
	async signal(signal) { await this.#task.ask("signal", { signal }); }
	async resize(rows, cols) { await this.#task.ask("resize", { rows, cols }); }
	async port(number) {
		const { host, port } = await this.#task.ask("port", { port: number });
		return { host, port };
	}
	#put(bytes, eof) { return this.#line = this.#line.then(() => this.#task.write(bytes, eof)); }

	[Symbol.asyncIterator]() { return this.output(); }
	/* What it prints, as it comes. */
	async *output() {
		const { live } = this.#task;
		if (!live) throw new OptionError("its output is not read live: start it with stream: true", { option: "stream", allowed: "true" });
		try {
			for (let piece; (piece = await live.next()); live.took(piece)) yield piece;
		} finally { live.discard(); }
	}
	[Symbol.asyncDispose ?? Symbol("Symbol.asyncDispose")]() { return this.kill(); }
}

module.exports = { Process, Task, only, named, fields, words, content, throwIfAborted };

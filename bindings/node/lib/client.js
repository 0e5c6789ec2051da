"use strict";
/* The client of docs/PROTOCOL.md over a child, `cloche serve`.
 *
 * One child a process (a worker thread has its own), started at first use. While nothing is waited for, neither the child nor its pipes
 * keep the event loop alive; it ends when its input does, and that ends with this process, however this process ends.
 *
 * Back-pressure: writes wait in line for room in the pipe; what a call prints live is taken by its reader, which says so (`ack`), and at
 * most WINDOW bytes are on their way. A peer that breaks the protocol is ended, and all that waits gets the ProtocolError. */
const { spawn } = require("node:child_process");
const { existsSync, realpathSync } = require("node:fs");
const path = require("node:path");
const errors = require("./errors.js");
const { Parser, frames, camel } = require("./frames.js");
const { version } = require("../package.json");

const PROTOCOL = 1, OLDEST = [0, 1, 0], HELLO_MS = 60000;
const WINDOW = 1 << 20, MOST_KEPT = 2 ** 30; // of live output on its way; of what one answer brings, beyond what was asked for
const KEPT = new Set(["output", "files", "denied", "note", "data"]);
/* The feature of a program that an operation needs; those that every program has are not here. */
const FEATURES = {
	run: "run", run_code: "run_code", start: "background", snapshot: "snapshot", restore: "snapshot", fork: "fork", setup: "setup", port: "port",
	write_file: "files", read_file: "files", list_files: "files", stat: "files", remove: "files", make_dir: "files", rename: "files",
};
const { ProtocolError, Unsupported, SystemFault, Closed } = errors;

/* $CLOCHE_BIN, the one that came with this package, one on PATH; never the script bin/cloche.js, which would ask this again. */
function program(directories = (process.env.PATH ?? "").split(path.delimiter)) {
	if (process.platform !== "linux")
		throw new Unsupported(`cloche needs Linux, and this is ${process.platform}: run it in a Linux virtual machine (WSL2, Lima, colima)`);
	if (process.env.CLOCHE_BIN) return process.env.CLOCHE_BIN;
	try {
		return require.resolve(`@cloche/linux-${process.arch}/bin/cloche`);
	} catch {
		for (const file of directories.map((directory) => path.join(directory, "cloche")))
			if (!file.includes("/node_modules/") && existsSync(file) && path.extname(realpathSync(file)) !== ".js") return file;
	}
	throw new Unsupported(`there is no program cloche here: the package @cloche/linux-${process.arch} brings it; or install it on PATH, or name it in CLOCHE_BIN`);
}

class Client {
	#program;
	#child;
	#parser = new Parser((frame, payload) => this.#frame(frame, payload));
	#next = 1;
	#pending = new Map(); // id -> { resolve, reject, onEvent, kept, most }
	#calls = new Map(); // id of a `start` -> receiver of its events
	#holds = 0;
	#room = () => {}; // called when there is some in the pipe
	#waiting = null; // for that
	#stderr = "";
	#peer = null; // the program's version, after hello
	#features = new Set();
	dead = null;

	constructor(file) {
		this.#program = file;
		// A session of its own: an interrupt at the terminal is for this process, which may want to end its calls in order.
		const child = this.#child = spawn(file, ["serve"], { stdio: "pipe", detached: true });
		child.on("error", (e) => this.#fail(new Unsupported(`${file} can't be started: ${e.message}`)));
		const over = (code, signal) => this.#fail(new SystemFault(this.#ending(`ended ${signal ? `by ${signal}` : `with ${code}`}`)));
		child.on("exit", (...how) => {
			const guard = setTimeout(over, 1000, ...how); // should somebody else hold the pipe open
			child.once("close", () => clearTimeout(guard));
		});
		child.on("close", over);
		for (const stream of [child.stdin, child.stdout, child.stderr]) stream?.on("error", () => {}); // the exit tells
		child.stdin?.on("drain", () => { this.#waiting = null; this.#room(); });
		child.stderr?.on("data", (text) => { this.#stderr = (this.#stderr + text).slice(-2000); });
		child.stdout?.on("data", (chunk) => this.#data(chunk));
		child.stderr?.unref();
		this.#ref(false);
		this.ready = this.#hello();
		this.ready.catch(() => {});
	}

	async #hello() {
		const guard = setTimeout(() => this.#fail(new ProtocolError(this.#ending("does not answer"))), HELLO_MS);
		try {
			const hello = await this.request("hello", { protocol: PROTOCOL, client: `cloche-node/${version}`, ack: true }).done;
			const peer = String(hello.version).split(".").map(Number);
			if (hello.protocol !== PROTOCOL || peer.length !== 3 || !peer.every(Number.isInteger) || !Array.isArray(hello.features))
				throw new ProtocolError(this.#ending("does not speak the protocol of cloche serve"));
			const at = peer.findIndex((n, i) => n !== OLDEST[i]);
			if (at >= 0 && peer[at] < OLDEST[at])
				throw new Unsupported(`${this.#program} is cloche ${hello.version}; this package, ${version}, needs ${OLDEST.join(".")} or newer`);
			this.#features = new Set(hello.features);
			this.#peer = hello.version;
		} catch (e) {
			this.#fail(e);
			throw this.dead;
		} finally {
			clearTimeout(guard);
		}
	}
	#ending(what) {
		const said = this.#stderr.trim().split("\n").pop();
		const need = this.#peer ? "" : `; this package, ${version}, needs a cloche of ${OLDEST.join(".")} or newer, which has \`cloche serve\``;
		return `${this.#program} ${what}${said ? `: ${said}` : ""}${need}`;
	}

	/* Sends a request. `done` is its last frame; `onEvent` gets the others, `onCall` those that are about the call that it starts. `most`:
	 * how many bytes the answer may have, beyond MOST_KEPT. Throws what can't be sent. */
	request(op, fields, { payload, onEvent, onCall, most = 0 } = {}) {
		if (this.dead) throw new Closed(`the session has ended: ${this.dead.message}`);
		const feature = FEATURES[op];
		if (feature && !this.#features.has(feature)) throw new Unsupported(`${this.#program}, cloche ${this.#peer}, has no ${feature}: a newer one is needed`);
		const id = this.#next++, parts = frames({ id, op, ...fields }, payload), first = parts.next().value;
		const done = new Promise((resolve, reject) => {
			this.#pending.set(id, { resolve, reject, onEvent, kept: 0, most: most + MOST_KEPT });
		});
		this.hold();
		if (onCall) this.#calls.set(id, onCall);
		this.#send(id, first, parts);
		return { id, done };
	}
	/* Without an answer. */
	tell(op, fields) {
		for (const frame of frames({ id: this.#next++, op, ...fields })) this.#write(frame);
	}
	/* Whoever has more frames waits until the pipe has taken those before. */
	async #send(id, frame, rest) {
		for (; frame && this.#pending.has(id); frame = rest.next().value)
			if (!this.#write(frame)) await (this.#waiting ??= new Promise((resolve) => { this.#room = resolve; }));
	}
	#write(frame) { return this.dead || (this.#child.stdin?.write(frame) ?? true); }

	#data(chunk) {
		try {
			if (!this.dead) this.#parser.push(chunk);
		} catch (e) {
			this.#fail(new ProtocolError(this.#ending(`does not speak the protocol of cloche serve: ${e.message}`)));
		}
	}
	#frame(frame, payload) {
		if (this.dead) return;
		if (frame.event === "fatal" || (frame.event === "error" && frame.id === undefined)) return this.#fail(errors.errorOf(frame.error, camel));
		if (typeof frame.event !== "string") throw new ProtocolError("a frame without an event");
		if (frame.id === undefined) {
			const call = this.#calls.get(frame.call);
			if (!call) throw new ProtocolError("an event of no call");
			if (frame.event === "ended") this.#calls.delete(frame.call);
			return call(frame, payload);
		}
		const one = this.#pending.get(frame.id);
		if (!one) throw new ProtocolError("an answer to no request");
		if (frame.event !== "done") {
			if (KEPT.has(frame.event)) one.kept += payload.length || 65536;
			if (one.kept > one.most) throw new ProtocolError("an answer without an end");
			return one.onEvent?.(frame, payload);
		}
		const error = frame.error === undefined || frame.error === null ? null : errors.errorOf(frame.error, camel);
		this.#pending.delete(frame.id);
		this.release();
		if (!error) return one.resolve(frame);
		this.#calls.delete(frame.id);
		one.reject(error);
	}
	#fail(error) {
		if (this.dead) return;
		this.dead = error;
		for (const { reject } of this.#pending.values()) { this.release(); reject(error); }
		for (const call of this.#calls.values()) call({ event: "ended" });
		this.#pending.clear();
		this.#calls.clear();
		this.#room();
		this.#child.stdin?.destroy();
		this.#child.stdout?.destroy();
		if (this.#child.exitCode === null && this.#child.signalCode === null) this.#child.kill("SIGKILL");
	}

	/* Somebody waits for this client: the process stays. */
	hold() { if (this.#holds++ === 0) this.#ref(true); }
	release() { if (--this.#holds === 0) this.#ref(false); }
	#ref(on) {
		for (const one of [this.#child, this.#child.stdin, this.#child.stdout]) one?.[on ? "ref" : "unref"]?.();
	}
}

/* Live output of one call, on its way from the client to a reader. */
class Live {
	#client;
	#queue = [];
	#reader = null;
	#ended = false;
	#unread = 0; // sent and not acknowledged
	#read = 0; // read and not acknowledged
	#passing = false; // nobody reads any more
	call = 0;

	constructor(client) { this.#client = client; }

	push(stream, data) {
		this.#unread += data.length;
		if (this.#unread > WINDOW) throw new ProtocolError("more live output than there is room for");
		if (this.#passing) return this.took({ data });
		this.#queue.push({ stream, data });
		this.#reader?.();
	}
	/* Passes over the rest, so that its call goes on. */
	discard() {
		this.#passing = true;
		for (const piece of this.#queue.splice(0)) this.took(piece);
	}
	end() {
		this.#ended = true;
		this.#reader?.();
	}
	/* The next piece, or null behind the last one. */
	async next() {
		while (this.#queue.length === 0) {
			if (this.#ended) return null;
			this.#client.hold();
			await new Promise((resolve) => { this.#reader = resolve; });
			this.#client.release();
		}
		return this.#queue.shift();
	}
	/* A piece is done with. */
	took({ data }) {
		this.#read += data.length;
		if (this.#read < WINDOW / 4 || this.#ended) return;
		this.#client.tell("ack", { call: this.call, size: this.#read });
		this.#unread -= this.#read;
		this.#read = 0;
	}
}

let shared = null;
/* This process's client, ready to be talked to. */
async function connect() {
	if (shared === null || shared.dead) shared = new Client(program());
	await shared.ready;
	return shared;
}

module.exports = { connect, Live, program };

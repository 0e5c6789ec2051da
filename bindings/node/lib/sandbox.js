"use strict";
/* A sandbox: options and a workspace. Each call runs in a box of its own, which is thrown away; files of the workspace stay.
 *
 * No rule is here: options, paths and commands are judged by cloche serve. */
const path = require("node:path");
const { OptionError, Closed } = require("./errors.js");
const { connect } = require("./client.js");
const { camel, snake, camelKeys, wrong, plain, text, unicode } = require("./frames.js");
const { list, rows } = require("./result.js");
const { Process, Task, only, named, fields, words, content, throwIfAborted } = require("./process.js");

const CALL_OPTIONS = ["timeoutS", "env", "cwd", "stdin", "pty", "trackFiles", "onStdout", "onStderr", "signal"];
const isObject = (value) => Object.prototype.toString.call(value) === "[object Object]";
/* Relative to where this process is: cloche serve may be elsewhere. */
const absolute = (file) => (typeof file === "string" ? path.resolve(file) : file);

/* Options under their names in the protocol. */
function translate(given) {
	if (!isObject(given)) throw wrong("options", "an object", given);
	const sent = {};
	for (const [option, value] of Object.entries(given)) {
		if (["onStdout", "onStderr", "onProgress"].includes(option) || value === undefined) continue;
		if (option !== camel(option)) throw new OptionError(`there is no option ${option}: write ${camel(option)}`, { option, allowed: camel(option) });
		sent[snake(text(option, "options"))] = plain(value, option);
	}
	if (isObject(sent.rlimits)) sent.rlimits = Object.fromEntries(Object.entries(sent.rlimits).map(([k, v]) => [snake(k), v]));
	return sent;
}

/* Sandboxes that nobody holds any more are closed. */
const forgotten = new FinalizationRegistry(({ client, sandbox }) => {
	if (!client.dead) client.request("close", { sandbox }).done.catch(() => {});
});

class Sandbox {
	#options;
	#sent;
	#client = null;
	#id = 0;
	#opening = null;
	#closing = null;
	#about = {};

	constructor(options = {}) {
		this.#sent = translate(options);
		this.#options = { ...options };
	}
	/* What opening it has found. */
	get fault() { return this.#about.fault ?? null; }
	get image() { return this.#about.image ?? null; }
	get workspace() { return this.#about.workspace ?? null; }
	get notes() { return this.#about.notes ?? []; }

	/* Makes it ready; so does the first call of a method that needs it. */
	async open({ signal } = {}) {
		this.#opening ??= this.#open(signal).catch((e) => { this.#opening = null; throw e; });
		await this.#opening;
		return this;
	}
	async #open(signal) {
		throwIfAborted(signal);
		this.#client = await connect();
		const task = new Task(this.#client, "open", { signal, ...this.#callbacks() });
		const failed = async (e) => { await this.#drop().catch(() => {}); throw e; };
		await task.run({ options: this.#sent }, {}, (done) => this.#is(done)).catch(failed);
	}
	#is({ sandbox, ...about }) {
		this.#id = sandbox;
		this.#about = camelKeys(about);
		forgotten.register(this, { client: this.#client, sandbox }, this);
	}
	/* All its boxes are ended, and what it had on the disk is removed; a workspace that was named stays. */
	close() { return this.#closing ??= Promise.resolve(this.#opening).catch(() => {}).then(() => this.#drop()); }
	destroy() { return this.close(); }
	[Symbol.asyncDispose ?? Symbol("Symbol.asyncDispose")]() { return this.close(); }
	async #drop() {
		const sandbox = this.#id;
		this.#id = 0;
		forgotten.unregister(this);
		if (sandbox && !this.#client.dead) await this.#client.request("close", { sandbox }).done;
	}
	/* The sandbox's, in place of those that are not given. */
	#callbacks({ onStdout = this.#options.onStdout, onStderr = this.#options.onStderr, onProgress = this.#options.onProgress } = {}) {
		return { onStdout, onStderr, onProgress };
	}
	async #ready(signal) {
		throwIfAborted(signal);
		if (this.#closing) throw new Closed("the sandbox is closed");
		await this.open({ signal });
		return this.#client;
	}

	async runCode(code, options = {}) {
		const { language, ...rest } = only(options, [...CALL_OPTIONS, "language"], "runCode");
		return this.#call("run_code", rest, { language }, Buffer.from(unicode(code, "code")));
	}
	async run(argv, options = {}) { return this.#call("run", only(options, CALL_OPTIONS, "run"), {}, words(argv)); }
	async #call(op, options, given, payload) {
		const task = new Task(await this.#ready(options.signal), op, { ...options, ...this.#callbacks(options) }, this);
		return task.run({ sandbox: this.#id, ...fields(given) }, { payload, most: this.#most() });
	}
	async start(argv, options = {}) {
		const payload = words(argv), given = only(options, [...CALL_OPTIONS, "stream"], "start");
		const task = new Task(await this.#ready(given.signal), "start", { ...given, ...this.#callbacks(given) }, this);
		const done = task.begin({ sandbox: this.#id }, { payload });
		try {
			await done;
			throwIfAborted(options.signal);
		} catch { await task.finish(done, () => null); }
		task.feed();
		return new Process(task, options.stdin, this.#most());
	}
	#most() { return 2 * (this.#about.maxOutputBytes ?? 0); }

	/* An operation on the workspace: its arguments, and the options that were given of those that it has. */
	async #ask(op, given, options = {}, names = [], extra = {}) {
		const sent = named({ ...given, ...only(options, names, camel(op)) });
		return (await this.#ready()).request(op, { sandbox: this.#id, ...sent }, extra).done;
	}
	async writeFile(file, data, options) {
		return (await this.#ask("write_file", { path: file }, options, ["mode"], { payload: content(data, "data") })).size;
	}
	async readFile(file, options) {
		const parts = [], onEvent = (frame, bytes) => { if (frame.event === "data") parts.push(bytes); };
		await this.#ask("read_file", { path: file }, options, ["offset", "length", "maxBytes"], { onEvent, most: Number(options?.maxBytes) || 0 });
		return new Uint8Array(Buffer.concat(parts));
	}
	async listFiles(directory = "", options) {
		const found = [], onEvent = (frame) => { if (frame.event === "files") found.push(...camelKeys(list(frame.files))); };
		await this.#ask("list_files", { path: directory === "" ? null : directory }, options, ["recursive"], { onEvent });
		return found;
	}
	async stat(file) { return camelKeys((await this.#ask("stat", { path: file })).file); }
	async remove(file, options) { await this.#ask("remove", { path: file }, options, ["recursive"]); }
	async makeDir(file, options) { await this.#ask("make_dir", { path: file }, options, ["parents"]); }
	async rename(file, to, options) { await this.#ask("rename", { path: file, to }, options, ["replace"]); }

	async snapshot(file, options) {
		const { size, files, left_out } = await this.#ask("snapshot", { file: absolute(file) }, options, ["format"]);
		return camelKeys({ size, files, left_out });
	}
	async restore(file) { await this.#ask("restore", { file: absolute(file) }); }
	/* Another one with the same options and a copy of the workspace. */
	async fork() {
		const other = new Sandbox(this.#options), done = await this.#ask("fork", {});
		other.#client = this.#client;
		other.#is({ ...this.#about, workspace: null, ...done });
		other.#opening = Promise.resolve();
		return other;
	}
	async setup(command, options = {}) {
		const given = only(options, ["timeoutS", "onStdout", "onStderr", "onProgress", "signal"], "setup");
		const task = new Task(await this.#ready(given.signal), "setup", { ...given, ...this.#callbacks(given) }, this);
		const made = ({ layer, found, fault }) => camelKeys({ layer, found, fault });
		return task.run({ sandbox: this.#id, command: text(command, "command") }, {}, made);
	}
	/* What the program says of it: its options as they hold, its image, its limits. */
	async info() {
		const { options, image, limits } = await this.#ask("info", {});
		const named = Object.entries(options ?? {}).map(([k, v]) => [camel(k), k === "rlimits" ? camelKeys(v) : v]);
		return { options: Object.fromEntries(named), image: camelKeys(image), limits: rows(limits) };
	}
}

/* Closes a sandbox behind `work`, however that ends; what `work` throws is told before what closing does. */
async function closing(sandbox, work) {
	const failed = async (e) => { await sandbox.close().catch(() => {}); throw e; };
	const result = await Promise.resolve(sandbox).then(work).catch(failed);
	await sandbox.close();
	return result;
}
async function withSandbox(options, work) {
	if (typeof options === "function") [options, work] = [{}, options];
	if (typeof work !== "function") throw wrong("work", "a function", work);
	return closing(new Sandbox(options), async (sandbox) => work(await sandbox.open()));
}
/* One call in a sandbox of its own: the options of both. */
async function once(method, what, options) {
	if (!isObject(options)) throw wrong("options", "an object", options);
	const { language, stdin, pty, cwd, signal, ...rest } = options;
	const call = { stdin, pty, cwd, signal, ...(method === "runCode" && { language }) };
	return closing(new Sandbox(rest), (sandbox) => sandbox[method](what, call));
}
const runCode = (code, options = {}) => once("runCode", code, options);
const run = (argv, options = {}) => once("run", argv, options);

module.exports = { Sandbox, withSandbox, runCode, run };

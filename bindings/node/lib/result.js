"use strict";
/* What a call has come to: docs/OUTCOME.md, under this language's names. */
const { FaultError, ProtocolError } = require("./errors.js");
const { camel, camelKeys } = require("./frames.js");

const string = (chunks) => Buffer.concat(chunks).toString("utf8");

/* A value that the code has shown, in each form that it has: text, or base64 of what is no text. */
class Result {
	constructor(data) { this.data = data; }
	formats() { return Object.keys(this.data); }
	get text() { return this.data["text/plain"] ?? null; }
	get html() { return this.data["text/html"] ?? null; }
	get markdown() { return this.data["text/markdown"] ?? null; }
	get svg() { return this.data["image/svg+xml"] ?? null; }
	get json() { return this.data["application/json"] ?? null; }
	get png() { return bytes(this.data["image/png"]); }
	get jpeg() { return bytes(this.data["image/jpeg"]); }
}
const bytes = (base64) => (base64 === undefined ? null : new Uint8Array(Buffer.from(base64, "base64")));

const FIELDS = ["exit_code", "signal", "fault", "duration_ms", "truncated", "stdout_cut", "stderr_cut", "usage", "image", "files_cut"];
const TABLES = ["limits", "events"]; // whose rows have names of their own, such as a fault's `limit` tells

class ExecutionResult {
	constructor(outcome, { stdout, stderr, files, denied, notes }) {
		this.stdout = string(stdout);
		this.stderr = string(stderr);
		for (const name of FIELDS) this[camel(name)] = camelKeys(outcome[name] ?? null);
		for (const name of TABLES) this[name] = rows(outcome[name]);
		this.files = files;
		this.denied = denied;
		this.notes = notes;
		this.results = list(outcome.results ?? []).map((data) => new Result(data));
		// The very bytes, for those who want them; not among what is printed.
		Object.defineProperty(this, "stdoutBytes", { get: () => new Uint8Array(Buffer.concat(stdout)) });
		Object.defineProperty(this, "stderrBytes", { get: () => new Uint8Array(Buffer.concat(stderr)) });
	}
	/* Ended by itself, with 0. */
	get success() { return this.exitCode === 0 && this.fault === null; }
	/* What the code wrote: nothing of cloche's is ever in stderr. */
	get codeStderr() { return this.stderr; }
	get runtimeNotes() { return this.notes; }
	raiseForFault() {
		if (this.fault !== null) throw new FaultError(this);
		return this;
	}
}

/* A table of limits or counters, its rows' names as they are. */
const rows = (table) => table && Object.fromEntries(Object.entries(table).map(([name, row]) => [name, camelKeys(row)]));

/* A changed file; what it was before, if it has another name now. */
function change(file) {
	const { from = null, ...rest } = camelKeys(file ?? {});
	return { ...rest, previous: from };
}

/* Gathers the events of a call. */
class Kept {
	#of = { stdout: [], stderr: [], files: [], denied: [], notes: [] };

	add(frame, payload) {
		if (frame.event === "output" && (frame.stream === "stdout" || frame.stream === "stderr")) this.#of[frame.stream].push(payload);
		else if (frame.event === "files") this.#of.files.push(...list(frame.files).map(change));
		else if (frame.event === "denied") this.#of.denied.push(camelKeys(frame.denied));
		else if (frame.event === "note") this.#of.notes.push(String(frame.text));
	}
	result(outcome) {
		const { fault } = outcome ?? {};
		if (fault === undefined || (fault !== null && typeof fault.type !== "string")) throw new ProtocolError("a call without an outcome");
		return new ExecutionResult(outcome, this.#of);
	}
}
function list(value) {
	if (!Array.isArray(value)) throw new ProtocolError("no list where one belongs");
	return value;
}

module.exports = { ExecutionResult, Result, Kept, list, rows };

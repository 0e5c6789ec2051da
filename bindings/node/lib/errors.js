"use strict";
/* Everything that this package throws is a SandboxError. What the code did, or the sandbox did to it, is no error: it is in the
 * result. The types are those of docs/PROTOCOL.md; a type that is not known here is a plain SandboxError. */

class SandboxError extends Error {
	constructor(message, fields = {}) {
		super(message);
		this.name = new.target.name;
		for (const key of ["option", "allowed", "rule"]) if (typeof fields[key] === "string") this[key] = fields[key];
	}
}

const NAMES = {
	protocol: "ProtocolError", option: "OptionError", mount_refused: "MountRefused", path: "PathRefused", not_found: "NotFound",
	exists: "AlreadyExists", too_large: "TooLarge", unsupported: "Unsupported", busy: "Busy", cancelled: "Cancelled", closed: "Closed",
	system: "SystemFault",
};
const classes = Object.assign({}, ...Object.values(NAMES).map((name) => ({ [name]: class extends SandboxError {} })));

/* What raiseForFault() throws. */
class FaultError extends SandboxError {
	constructor(result) {
		super(`${result.fault.type}: ${result.fault.message}`);
		Object.assign(this, { fault: result.fault, result });
	}
}

/* An AbortSignal's: thrown when the box is gone. `result` is what the call had come to, if it had begun. */
class AbortError extends SandboxError {
	constructor(signal, result = null) {
		super("The operation was aborted");
		Object.assign(this, { code: "ABORT_ERR", cause: signal.reason, result });
	}
}

/* The error of a frame, with options under the names they have in this language. */
function errorOf(error, rename) {
	if (typeof error?.message !== "string") throw new classes.ProtocolError("an error that is none");
	const Type = Object.hasOwn(NAMES, error.type) ? classes[NAMES[error.type]] : SandboxError;
	if (typeof error.option !== "string" || error.option === "") return new Type(error.message, error);
	const option = rename(error.option);
	return new Type(error.message.replaceAll(error.option, option), { ...error, option });
}

module.exports = { SandboxError, ...classes, FaultError, AbortError, errorOf };

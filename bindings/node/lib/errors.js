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
class ProtocolError extends SandboxError {}
class OptionError extends SandboxError {}
class MountRefused extends SandboxError {}
class PathRefused extends SandboxError {}
class NotFound extends SandboxError {}
class AlreadyExists extends SandboxError {}
class TooLarge extends SandboxError {}
class Unsupported extends SandboxError {}
class Busy extends SandboxError {}
class Cancelled extends SandboxError {}
class Closed extends SandboxError {}
class SystemFault extends SandboxError {}

/* What raiseForFault() throws. */
class FaultError extends SandboxError {
	constructor(result) {
		super(`${result.fault.type}: ${result.fault.message}`);
		this.fault = result.fault;
		this.result = result;
	}
}

/* An AbortSignal's: thrown when the box is gone. `result` is what the call had come to, if it had begun. */
class AbortError extends SandboxError {
	constructor(signal, result = null) {
		super("The operation was aborted");
		this.code = "ABORT_ERR";
		this.cause = signal.reason;
		this.result = result;
	}
}

const TYPES = {
	protocol: ProtocolError, option: OptionError, mount_refused: MountRefused, path: PathRefused, not_found: NotFound,
	exists: AlreadyExists, too_large: TooLarge, unsupported: Unsupported, busy: Busy, cancelled: Cancelled, closed: Closed,
	system: SystemFault,
};

/* The error of a frame, with options under the names they have in this language. */
function errorOf(error, rename) {
	if (typeof error !== "object" || error === null || typeof error.message !== "string")
		throw new ProtocolError("an error that is none");
	const Type = Object.hasOwn(TYPES, error.type) ? TYPES[error.type] : SandboxError;
	if (typeof error.option !== "string" || error.option === "") return new Type(error.message, error);
	const option = rename(error.option);
	return new Type(error.message.replaceAll(error.option, option), { ...error, option });
}

module.exports = {
	SandboxError, ProtocolError, OptionError, MountRefused, PathRefused, NotFound, AlreadyExists, TooLarge, Unsupported, Busy,
	Cancelled, Closed, SystemFault, FaultError, AbortError, errorOf,
};

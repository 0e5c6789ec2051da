import cloche from "./index.js";

export const {
	Sandbox, withSandbox, runCode, run, Process, ExecutionResult, Result, SandboxError, ProtocolError, OptionError, MountRefused, PathRefused,
	NotFound, AlreadyExists, TooLarge, Unsupported, Busy, Cancelled, Closed, SystemFault, FaultError, AbortError, DEFAULT_TMPFS_MB, version,
} = cloche;
export default cloche;

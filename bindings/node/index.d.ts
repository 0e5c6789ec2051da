/// <reference lib="es2020" />
/// <reference lib="esnext.disposable" />

/** Languages of `runCode`. The image has to have the interpreter: else the result's fault is `exec_failed`, and names both. */
export type Language = "python" | "bash" | "sh" | "node";

/** What has an `aborted` and tells when it changes: an `AbortSignal`. */
export interface Signal {
	readonly aborted: boolean;
	readonly reason?: unknown;
	addEventListener(type: "abort", listener: () => void, options?: { once?: boolean }): void;
	removeEventListener(type: "abort", listener: () => void): void;
}

/** What goes to a command's standard input: whole, or piece by piece as fast as the command takes it. A `Readable` is one, too. */
export type Input = string | Uint8Array | Iterable<string | Uint8Array> | AsyncIterable<string | Uint8Array>;

/** Takes a piece of live output. Every piece comes, in its order; the next one not before a promise that is returned has resolved, and the
 * command is held up meanwhile. What is thrown is thrown by the call, when it has ended. */
export type OutputCallback = (piece: Uint8Array) => unknown;

/** How a pull or a setup comes along. */
export interface Progress {
	readonly phase: string;
	readonly text: string | null;
	readonly size: number | null;
	readonly total: number | null;
}

/** Options of a sandbox. All may be left out; docs/OPTIONS.md has the values of each. */
export interface SandboxOptions {
	/** `"host"`: this machine's own programs, read-only. Or an OCI image: `"python:3.12-slim"`. Default: `"host"`. */
	image?: string | null;
	/** When to download the image. Default: `"missing"`. */
	pull?: "missing" | "always" | "never" | null;
	/** The image for this platform: `"linux/arm64"`. */
	platform?: string | null;
	/** How long downloading it may take. Default: 600. */
	imageTimeoutS?: number | null;
	/** Compile its Python library once. Default: `true`. */
	pycCache?: boolean | null;
	/** A command for `sh -c` that installs what calls need, run once with a network; what it leaves is kept. */
	setup?: string | null;
	/** Default: four times `memoryMb`. */
	setupMemoryMb?: number | null;
	/** Default: 300. */
	setupTimeoutS?: number | null;
	/** Calls can't change what `setup` has installed. Default: `true`. */
	depsReadonly?: boolean | null;
	/** A directory of this machine, absolute; shared read-write and kept. Default: one in memory, gone with the sandbox. */
	workspace?: string | null;
	/** The size of a workspace in memory, by default half of `memoryMb`. A directory that grows beyond it ends the call: fault `workspace_full`. */
	workspaceMaxBytes?: number | null;
	/** The workspace is a linked worktree: share what commits need of its repository. Default: `false`. */
	git?: boolean | null;
	/** Fill `files` of results. Default: `true`. */
	trackFiles?: boolean | null;
	/** Directories and files to share: where they are here, and where in the box. */
	mounts?: Readonly<Record<string, string | readonly [target: string, mode: "ro" | "rw"]>> | null;
	/** Sized scratch directories: `{ "/tmp": "512m" }`. `{}`: none. Default: `/tmp` of `DEFAULT_TMPFS_MB`. */
	tmpfs?: Readonly<Record<string, string>> | null;
	/** Default: 512. */
	memoryMb?: number | null;
	/** How many processors' time. Default: no limit. */
	cpus?: number | null;
	/** Processes and threads at once. Default: 256. */
	pids?: number | null;
	/** Deadline of a call that has none of its own. Default: 30. */
	timeoutS?: number;
	/** How much of each stream is kept: its first and its last half. Default: 64 MiB. */
	maxOutputBytes?: number | null;
	/** The size of `/dev/shm`. */
	shmMb?: number | null;
	/** Limits of each process. */
	rlimits?: { readonly addressSpace?: number; readonly fileSize?: number; readonly openFiles?: number } | null;
	/** `false`: limits by watching, where the kernel need not hold them. Default: `true`. */
	enforceLimits?: boolean | null;
	/** `true`: nothing runs unless the kernel holds memory and pids. Default: `false`. */
	requireLimits?: boolean | null;
	/** `true` shares this machine's network, its loopback included. Default: `false`. */
	network?: boolean | null;
	/** A user of the image: a name, `"1000"`, `"1000:1000"`. */
	user?: string | null;
	/** 65,536 user ids, for programs that change to others. Default: `false`. */
	uidRange?: boolean | null;
	/** Environment of calls; nothing of this process's is passed on. */
	env?: Readonly<Record<string, string>> | null;
	/** Capabilities that boxes do without. Default: `["ALL"]`. */
	capDrop?: readonly string[] | null;
	/** Capabilities that they keep. */
	capAdd?: readonly string[] | null;
	securityProfile?: "default" | "untrusted" | null;
	/** A root that can't be written to. Default: `false`. */
	readOnly?: boolean | null;
	/** `"allow=CALL"` or `"deny=CALL"`, for a system call each. */
	seccompRules?: readonly string[] | null;
	/** A profile of AppArmor that is loaded. */
	apparmor?: string | null;
	/** Character devices below /dev to give. */
	devices?: readonly string[] | null;
	/** Names of cloche.yaml: `["vcpu:heavy"]`. */
	profiles?: readonly string[] | null;
	/** A label. */
	name?: string | null;
	/** Not yet: refused with `Unsupported`. */
	egressAllow?: readonly string[] | null;
	/** Not yet. */
	prewarm?: number | null;
	/** Not yet. */
	persist?: boolean | null;
	/** Not yet. */
	persistTtlS?: number | null;
	/** Live output of `setup` and of calls, unless they have callbacks of their own; the result of a call has it, too. */
	onStdout?: OutputCallback | null;
	onStderr?: OutputCallback | null;
	/** Told how opening and setting up come along. */
	onProgress?: ((progress: Progress) => unknown) | null;
}

/** Options of one call. */
export interface CallOptions {
	/** Instead of the sandbox's. */
	timeoutS?: number | null;
	/** On top of the sandbox's. */
	env?: Readonly<Record<string, string>> | null;
	cwd?: string | null;
	/** Default: the end of file, at once. */
	stdin?: Input | null;
	/** A terminal; `true` is one of 24 rows and 80 columns. Its output is `stdout`. */
	pty?: boolean | readonly [rows: number, cols: number] | null;
	trackFiles?: boolean | null;
	/** Instead of the sandbox's; `null`: none. */
	onStdout?: OutputCallback | null;
	onStderr?: OutputCallback | null;
	/** Ends the box. The promise rejects with an `AbortError` when nothing of it is left. */
	signal?: Signal | null;
}
export interface RunCodeOptions extends CallOptions {
	/** Default: `"python"`. */
	language?: Language | null;
}
/** Options of `Sandbox.setup`. The callbacks get what its command prints, if it was not made before; what they throw is thrown when it has ended. */
export interface SetupOptions extends Pick<CallOptions, "timeoutS" | "onStdout" | "onStderr" | "signal"> {
	/** Instead of the sandbox's; `null`: none. */
	onProgress?: ((progress: Progress) => unknown) | null;
}
export interface StartOptions extends Omit<CallOptions, "stdin"> {
	/** `true`: `Process.stdin` writes it. */
	stdin?: Input | boolean | null;
	/** `true`: the call is iterated over for its live output, and held up while nobody does. Callbacks get none of it. */
	stream?: boolean | null;
}

export type FaultType = "timeout" | "oom" | "workspace_full" | "escape_blocked" | "killed" | "init_lost" | "exec_failed" | "startup_failed" | "cancelled";

/** Why a call did not end by itself. docs/FAULTS.md has them all. */
export interface SandboxFault {
	readonly type: FaultType;
	/** One line for people. */
	readonly message: string;
	/** Of `startup_failed`: where. */
	readonly stage?: string;
	/** Of a `setup` that failed: the end of what it printed. */
	readonly output?: string;
	/** Of `escape_blocked`: the system call, and who made it. */
	readonly syscall?: string | null;
	readonly comm?: string;
	/** Which of `limits` was hit. */
	readonly limit?: LimitName;
	/** Of `oom`: what the memory was. */
	readonly filledBy?: "anonymous" | "tmpfs" | "shm" | null;
}

/** What a call has used; `null` is unknown. */
export interface Usage {
	readonly cpuUserUs: number | null;
	readonly cpuSysUs: number | null;
	readonly memoryPeakBytes: number | null;
	readonly pidsPeak: number | null;
	readonly readBytes: number | null;
	readonly writtenBytes: number | null;
	readonly wallUs: number | null;
	readonly startUs: number | null;
	readonly queuedUs: number | null;
}

/** A limit: what was asked, what stands, and what holds it. docs/LIMITS.md explains the rungs. */
export interface Limit {
	readonly requested: number | null;
	readonly effective: number | null;
	readonly rung: string | null;
	readonly enforced: boolean;
}
export type LimitName = "memory" | "pids" | "cpus" | "timeout" | "output" | "file_size" | "open_files" | "workspace_max" | "io_weight";

/** Something that was refused, and the option of `cloche run` that would allow it. */
export interface Denial {
	readonly kind: "syscall" | "mount" | "read";
	readonly policy: string;
	readonly what: string | null;
	readonly path?: string;
	readonly pid?: number;
	readonly comm?: string;
	readonly count?: number;
	readonly allowWith: string | null;
	readonly reason: string | null;
}

/** A file of the workspace that a call has changed. */
export interface FileChange {
	readonly path: string;
	readonly change: "created" | "modified" | "deleted" | "renamed";
	readonly size: number;
	/** Of `renamed`: what its path was. */
	readonly previous: string | null;
}

/** A file of the workspace. */
export interface FileInfo {
	readonly path: string;
	readonly type: "file" | "directory" | "symlink" | "fifo" | "socket" | "device";
	readonly size: number;
	readonly mode: number;
	/** A `number` holds it to a quarter of a microsecond. */
	readonly mtimeNs: number;
	/** Of a symbolic link. */
	readonly target?: string;
}

/** An archive that `snapshot` has made. */
export interface Snapshot {
	/** In bytes. */
	readonly size: number;
	/** How many files are in it. */
	readonly files: number;
	/** How many sockets, FIFOs and devices are not. */
	readonly leftOut: number;
}

/** The image that runs; `null` for this machine's own programs. */
export interface ImageInfo {
	readonly name: string;
	readonly id: string;
	readonly manifest: string | null;
}

/** What was cut out of a stream: `bytes` behind the first `at`. */
export interface Cut {
	readonly at: number;
	readonly bytes: number;
}

/** What a call has come to. */
export class ExecutionResult {
	private constructor();
	/** As text; what is no UTF-8 is U+FFFD. */
	readonly stdout: string;
	readonly stderr: string;
	/** The very bytes. */
	readonly stdoutBytes: Uint8Array;
	readonly stderrBytes: Uint8Array;
	/** `null`: nothing ran. */
	readonly exitCode: number | null;
	/** The signal that ended the command. */
	readonly signal: number | null;
	/** Set only when the sandbox acted: an exception of the code is an exit code. */
	readonly fault: SandboxFault | null;
	readonly durationMs: number;
	readonly truncated: boolean;
	readonly stdoutCut: Cut | null;
	readonly stderrCut: Cut | null;
	readonly usage: Usage;
	readonly limits: Readonly<Record<LimitName, Limit>>;
	readonly denied: readonly Denial[];
	/** What changed in the workspace. */
	readonly files: readonly FileChange[];
	/** How many more have changed than `files` lists. */
	readonly filesCut: number;
	readonly results: readonly Result[];
	readonly image: ImageInfo | null;
	readonly events: Readonly<Record<string, number | null>>;
	/** What cloche has to say; none of it is in `stderr`. */
	readonly notes: readonly string[];
	/** The same as `notes`. */
	readonly runtimeNotes: readonly string[];
	/** The same as `stderr`: what the code wrote. */
	readonly codeStderr: string;
	/** `exitCode` is 0, and there is no fault. */
	readonly success: boolean;
	/** Throws a `FaultError` when there is a fault; else returns this. */
	raiseForFault(): this;
}

/** A value that the code has shown. So far there are none. */
export class Result {
	private constructor();
	/** By media type: text, or base64. */
	readonly data: Readonly<Record<string, unknown>>;
	formats(): string[];
	readonly text: string | null;
	readonly html: string | null;
	readonly markdown: string | null;
	readonly svg: string | null;
	readonly json: unknown;
	readonly png: Uint8Array | null;
	readonly jpeg: Uint8Array | null;
}

/** A piece of live output. */
export interface OutputPiece {
	readonly stream: "stdout" | "stderr";
	readonly data: Uint8Array;
}

/** A command in the background, made by `Sandbox.start`. It ends with its sandbox, at the latest with this process. */
export class Process implements AsyncIterable<OutputPiece>, AsyncDisposable {
	private constructor();
	/** What it has come to, when it has ended. */
	wait(): Promise<ExecutionResult>;
	/** Ends its box; resolves when that is gone. The result has the fault `cancelled`. */
	kill(): Promise<void>;
	/** Sends a signal to the command: `"TERM"`, `15`. */
	signal(signal: string | number): Promise<void>;
	/** The size of its terminal. Of one that was started without `pty` it rejects with `OptionError`. */
	resize(rows: number, cols: number): Promise<void>;
	/** An address of this machine's loopback that leads to a port of the box, while the call lives. */
	port(port: number): Promise<{ readonly host: string; readonly port: number }>;
	/** Of one that was started with `stdin: true`. Resolves to `true` when the command has taken it, `false` when it takes no more. */
	readonly stdin: { write(data: string | Uint8Array): Promise<boolean>; end(): Promise<boolean> } | null;
	/** The same as `output()`. */
	[Symbol.asyncIterator](): AsyncGenerator<OutputPiece, void, undefined>;
	/** Live output, of one that was started with `stream: true`. Whoever stops reading passes over the rest. */
	output(): AsyncGenerator<OutputPiece, void, undefined>;
	/** The same as `kill()`. */
	[Symbol.asyncDispose](): Promise<void>;
}

/** Options, and a workspace. Each call runs in a box of its own, which is thrown away; files of the workspace stay from call to call. */
export class Sandbox implements AsyncDisposable {
	constructor(options?: SandboxOptions);
	/** Makes it ready: pulls the image, runs `setup`. A method that needs it does so, too. */
	open(options?: { signal?: Signal | null }): Promise<this>;
	/** Ends its calls, and removes what it had on the disk; a `workspace` that was named stays. */
	close(): Promise<void>;
	/** The same as `close()`. */
	destroy(): Promise<void>;
	/** The same as `close()`. */
	[Symbol.asyncDispose](): Promise<void>;
	/** Why no call can start, found when it was opened. */
	readonly fault: SandboxFault | null;
	readonly image: ImageInfo | null;
	/** The workspace's directory on this machine; `null` for one in memory. */
	readonly workspace: string | null;
	readonly notes: readonly string[];

	/** Runs code. */
	runCode(code: string, options?: RunCodeOptions): Promise<ExecutionResult>;
	/** Runs a command: a list of its words. */
	run(argv: readonly string[], options?: CallOptions): Promise<ExecutionResult>;
	/** Starts a command in the background; it has no deadline unless one is given. With callbacks it keeps Node's event loop alive until it
	 * ends, as a child process does, so that they get all of its output; without them only what is awaited does. */
	start(argv: readonly string[], options?: StartOptions): Promise<Process>;

	/** Writes a file of the workspace, and the directories above it; resolves to its size. Paths are relative to the workspace, here and below. */
	writeFile(path: string, data: string | Uint8Array, options?: { mode?: number | null }): Promise<number>;
	/** Reads a file. More than `maxBytes` (64 MiB) is refused with `TooLarge`. */
	readFile(path: string, options?: { offset?: number | null; length?: number | null; maxBytes?: number | null }): Promise<Uint8Array>;
	/** Lists a directory and, unless told otherwise, those below it; sorted by path. */
	listFiles(directory?: string, options?: { recursive?: boolean | null }): Promise<FileInfo[]>;
	stat(path: string): Promise<FileInfo>;
	remove(path: string, options?: { recursive?: boolean | null }): Promise<void>;
	makeDir(path: string, options?: { parents?: boolean | null }): Promise<void>;
	rename(path: string, to: string, options?: { replace?: boolean | null }): Promise<void>;

	/** Writes the workspace into a new archive on this machine: `.tar.gz`, `.tgz` or `.tar.zst`. */
	snapshot(file: string, options?: { format?: string | null }): Promise<Snapshot>;
	/** Replaces the workspace's content by an archive's, when all of that has been verified. */
	restore(file: string): Promise<void>;
	/** Another sandbox with the same options and a copy of the workspace. */
	fork(): Promise<Sandbox>;
	/** Runs a command as the option `setup` does; later calls have what it left. */
	setup(command: string, options?: SetupOptions): Promise<{ layer: string | null; found: boolean; fault: SandboxFault | null }>;
	/** What holds for this sandbox. */
	info(): Promise<{ options: Record<string, unknown>; image: ImageInfo | null; limits: Readonly<Record<string, Limit>> | null }>;
}

/** Opens a sandbox, and closes it when `work` is done, however that ends. */
export function withSandbox<T>(work: (sandbox: Sandbox) => T | PromiseLike<T>): Promise<T>;
export function withSandbox<T>(options: SandboxOptions, work: (sandbox: Sandbox) => T | PromiseLike<T>): Promise<T>;

/** Runs code in a sandbox of its own. */
export function runCode(code: string, options?: SandboxOptions & Pick<RunCodeOptions, "language" | "stdin" | "pty" | "cwd" | "signal">): Promise<ExecutionResult>;
/** Runs a command in a sandbox of its own. */
export function run(argv: readonly string[], options?: SandboxOptions & Pick<CallOptions, "stdin" | "pty" | "cwd" | "signal">): Promise<ExecutionResult>;

/** Everything that is thrown is one of these. What the code did, and the sandbox did to it, is never thrown: it is in the result. */
export class SandboxError extends Error {
	/** Which option or argument was wrong, and which values there are. */
	readonly option?: string;
	readonly allowed?: string;
	/** Of a mount: the kind of rule that refuses it. */
	readonly rule?: string;
}
/** The program and this package do not understand each other. */
export class ProtocolError extends SandboxError {}
/** An option or argument that is wrong. */
export class OptionError extends SandboxError {}
/** A mount, workspace or device that no box is given. */
export class MountRefused extends SandboxError {}
/** A path that leaves the workspace, passes a link, or names what is no regular file. */
export class PathRefused extends SandboxError {}
export class NotFound extends SandboxError {}
export class AlreadyExists extends SandboxError {}
/** More than may be read, listed or sent at once. */
export class TooLarge extends SandboxError {}
/** This machine or this program can't do that. */
export class Unsupported extends SandboxError {}
/** Too many calls wait. */
export class Busy extends SandboxError {}
export class Cancelled extends SandboxError {}
/** The sandbox is closed, or the program has ended. */
export class Closed extends SandboxError {}
/** The machine: no space, no descriptor, no permission. */
export class SystemFault extends SandboxError {}
/** What `raiseForFault()` throws. */
export class FaultError extends SandboxError {
	readonly fault: SandboxFault;
	readonly result: ExecutionResult;
}
/** A signal's: the box is gone. */
export class AbortError extends SandboxError {
	readonly code: "ABORT_ERR";
	readonly cause: unknown;
	/** What the call had come to, if it had begun. */
	readonly result: ExecutionResult | null;
}

/** The size of `/tmp` in a box when `tmpfs` is not given; half of the memory, where that is less. */
export const DEFAULT_TMPFS_MB: number;
/** This package's version. */
export const version: string;

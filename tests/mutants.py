"""Every lock and every limit once compiled out, and the tests that must then go red. tools/mutants builds and runs them.

A row: its name; the edits that take the lock out, each a file and a text in it that stands there exactly once
and what replaces it; the tests. `refuses` marks a lock without which the kernel gives no box at all, so that it can't be missing unseen.
`who` is "root" where the attack needs that caller. A test "unit:NAME" is a program of tests/unit. `place` is the row of guest/places.tsv in
whose guest the tests run, where this machine has no such rung. `image`: the tests need cloche-image.

What is not here: locks behind which another one stands that refuses the same thing, so that no attack can tell. They are in EQUIVALENT.
"""
import os

S, I, G = "security/", "integration/", "guest/"
ROWS = []


def mutant(name, *edits, tests=(), refuses=False, who="any", place=None, image=False):
    ROWS.append({"n": len(ROWS), "name": name, "edits": edits, "tests": tests, "refuses": refuses, "who": who, "place": place,
                 "image": image})


def here(path):
    """A mask shows only where the kernel has what it covers."""
    return os.path.exists(path)


def in_policy(name, before=" "):
    """A call that the filter refuses, let through. `before` stands before it in the sources."""
    return (("src/box/seccomp_policy.c", '"mkdir mkdirat"', f'"mkdir mkdirat {name}"'),
            ("src/box/seccomp_policy.c", f"{before}{name} ", before))


LAUNCH, INIT, LOCKS, OPS, PLAN = (f"src/box/{n}.c" for n in ("launch", "init", "locks", "ops", "plan"))
BUILD, POLICY, COMMAND, NOTIFY, MONITOR = (f"src/box/{n}.c" for n in ("seccomp_build", "seccomp_policy", "command", "notify", "monitor"))
CG1, RLIMITS, SUPERVISED, RELAY = (f"src/box/{n}.c" for n in ("cgroup1", "rlimits", "supervised", "relay"))
CG2, WHERE2, SCOPE, MANAGER, LIMITS, GROUPS = (f"src/box/{n}.c" for n in ("cgroup2", "cgroup2_where", "scope", "manager", "limits", "groups"))
FLAGS = "CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS"

# ---- namespaces ----
mutant("no user namespace", (LAUNCH, FLAGS, FLAGS.replace("CLONE_NEWUSER | ", "")), refuses=True)
mutant("no mount namespace", (LAUNCH, FLAGS, FLAGS.replace("CLONE_NEWNS | ", "")), refuses=True)
mutant("no pid namespace", (LAUNCH, FLAGS, FLAGS.replace("CLONE_NEWPID | ", "")),
       (INIT, "if (in->alone || kill(-1, SIGKILL) == 0 || errno == ESRCH) {", "{"), refuses=True)
mutant("no ipc namespace", (LAUNCH, FLAGS, FLAGS.replace("CLONE_NEWIPC | ", "")), tests=[S + "test_ids.py::test_namespaces_are_all_its_own"])
mutant("no uts namespace", (LAUNCH, FLAGS, FLAGS.replace(" | CLONE_NEWUTS", "")),
       (INIT, "sethostname(a->spec->hostname, strlen(a->spec->hostname)) < 0", "false"), tests=[S + "test_ids.py::test_namespaces_are_all_its_own"])
mutant("no network namespace", (INIT, "bool own_net = a->spec->network == BOX_NET_NONE;", "bool own_net = false;"),
       tests=[S + "test_network.py::test_only_loopback"])
mutant("no cgroup namespace", (INIT, "unshare(CLONE_NEWCGROUP) < 0", "false"), tests=[S + "test_ids.py::test_namespaces_are_all_its_own"])
mutant("the host's name", (INIT, "sethostname(a->spec->hostname, strlen(a->spec->hostname)) < 0", "false"),
       tests=[S + "test_files.py::test_hostname"])

# ---- ids and capabilities ----
mutant("root's boxes are host uid 0", ("src/engine/ids.c", "uid = ids_outer(map);", "uid = 0;"),
       ("src/engine/ids.c", "gid = ids_outer(map);", "gid = 0;"),
       tests=[S + "test_ids.py::test_ids_seen_from_the_host"], who="root")
mutant("root's groups stay", (LAUNCH, "setgroups(0, NULL) < 0 || ", ""), tests=[S + "test_ids.py::test_no_group_of_roots_stays"], who="root")
mutant("no_new_privs is not set", (LOCKS, "prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0", "false"), refuses=True)
mutant("the bounding set stays", (LOCKS, "if (keep >> cap & 1)\n\t\t\tcontinue;", "if (cap < 64)\n\t\t\tcontinue;"),
       (LOCKS, "if (have != (int)(keep >> cap & 1))", "if (have < 0)"), tests=[S + "test_ids.py::test_locks_read_back"])
mutant("capabilities stay, the bounding set too", (LOCKS, "if (syscall(SYS_capset, &head, set) < 0)", "if (false)"),
       (LOCKS, "memcmp(now, set, sizeof(set)) != 0", "false"), (LOCKS, "if (keep >> cap & 1)\n\t\t\tcontinue;", "if (cap < 64)\n\t\t\tcontinue;"),
       (LOCKS, "if (have != (int)(keep >> cap & 1))", "if (have < 0)"), tests=[S + "test_ids.py::test_locks_read_back"])
mutant("an ambient capability", (INIT, "locks_bounding(a->spec->cap_keep, e)", "locks_bounding(a->spec->cap_keep | 1 << 10, e)"),
       (INIT, "locks_caps(a->spec->cap_keep, e)", "locks_caps(a->spec->cap_keep | 1 << 10, e)"), tests=[S + "test_ids.py::test_locks_read_back"])

# ---- the filter ----
mutant("no filter", (LOCKS, "int fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);",
                     'int fd = open("/dev/null", flags ? O_RDONLY | O_CLOEXEC : 0);'),
       tests=[S + "test_syscalls.py::test_the_filter_stands_in_every_kind_of_box"])
mutant("set-id bits by chmod and mknod", *((BUILD, f"return put_mode(b, {n}, SC_SETID_BITS{more});", f"return put_mode(b, {n}, 0{more});")
                                           for n in (1, 2) for more in ("", " | SC_DEVICE_BIT")),
       tests=[S + "test_files.py::test_setid_bits"])
mutant("set-id bits by open", (BUILD, "put_if(b, BPF_JSET, SC_OPEN_CREATES, check,", "put_if(b, BPF_JSET, 0, check,"),
       tests=[S + "test_files.py::test_setid_bits"])
mutant("TIOCSTI", (BUILD, "0x5412 /* TIOCSTI", "0 /* TIOCSTI"), tests=["unit:seccomp"])
mutant("TIOCLINUX", (BUILD, "0x541C /* TIOCLINUX", "0 /* TIOCLINUX"), tests=["unit:seccomp"])
mutant("TIOCSETD", (BUILD, "0x5423 /* TIOCSETD", "0 /* TIOCSETD"), tests=["unit:seccomp"])
mutant("leases", (BUILD, "1024 /* F_SETLEASE */,\n\t\t   1040 /* F_SETDELEG */", "1040"), tests=["unit:seccomp"])
mutant("delegations", (BUILD, "1024 /* F_SETLEASE */,\n\t\t   1040 /* F_SETDELEG */", "1024"), tests=["unit:seccomp"])
mutant("namespaces by clone", (BUILD, "put_if(b, BPF_JSET, SC_NS_FLAGS,", "put_if(b, BPF_JSET, 0,"), tests=[S + "test_syscalls.py::test_refused"])
mutant("namespaces by unshare", (BUILD, "put_if(b, BPF_JSET, ~SC_UNSHARE_OK,", "put_if(b, BPF_JSET, 0,"),
       tests=[S + "test_syscalls.py::test_refused"])
mutant("namespaces by clone3", (POLICY, '"mkdir mkdirat"', '"mkdir mkdirat clone3"'), (POLICY, '"clone3 openat2', '"openat2'),
       tests=[S + "test_syscalls.py::test_refused"])
for call in ("openat2", "io_uring_setup", "userfaultfd", "keyctl", "perf_event_open"):
    mutant(f"call {call}", *in_policy(call), tests=[S + ("test_files.py::test_setid_bits" if call == "openat2" else "test_syscalls.py::test_refused")])
for call in ("process_vm_readv", "process_vm_writev"):
    mutant(f"call {call}", *in_policy(call), tests=[S + "test_syscalls.py::test_refused"])
mutant("call add_key", (POLICY, '"mkdir mkdirat"', '"mkdir mkdirat add_key"'), (POLICY, '"add_key request_key', '"request_key'),
       tests=[S + "test_syscalls.py::test_refused"])
mutant("call ptrace", (POLICY, '"mkdir mkdirat"', '"mkdir mkdirat ptrace"'), (POLICY, '"ptrace process', '"process'),
       tests=[S + "test_syscalls.py::test_refused"])
mutant("families of sockets", (BUILD, "at = put_if(b, BPF_JEQ, 16 /* AF_NETLINK */, netlink, refuse);",
                               "at = put_if(b, BPF_JEQ, 16 /* AF_NETLINK */, netlink, tail(b, SC_ALLOW));"),
       tests=[S + "test_network.py::test_family_refused"])
mutant("families of socket pairs", (BUILD, "local, tail(b, SC_EAFNOSUPPORT));", "local, tail(b, SC_ALLOW));"), tests=["unit:seccomp"])
mutant("netlink protocols", (BUILD, "int netlink = put_zero(b, ARG_LOW(2), tail(b, SC_ALLOW), refuse);", "int netlink = tail(b, SC_ALLOW);"),
       tests=[S + "test_network.py::test_family_refused"])
mutant("internet protocols", (BUILD, "PUT_IF_ANY(b, allow, refuse, 0, 6", "PUT_IF_ANY(b, allow, allow, 0, 6"),
       tests=["unit:seccomp"])
mutant("personality", (BUILD, "PUT_IF_ANY(b, tail(b, SC_ALLOW), tail(b, SC_EPERM), 0, 8,", "PUT_IF_ANY(b, tail(b, SC_ALLOW), tail(b, SC_ALLOW), 0, 8,"),
       tests=[S + "test_syscalls.py::test_refused"])
mutant("limits of init", (BUILD, "return put_prlimit(b);", "return bring_near(b, tail(b, SC_ALLOW));"), tests=[S + "test_init.py::test_init_is_out_of_reach"])
mutant("scheduling of init", (BUILD, "return put_zero(b, ARG_LOW(0), tail(b, SC_ALLOW), tail(b, SC_EPERM));",
                              "return bring_near(b, tail(b, SC_ALLOW));"), tests=[S + "test_init.py::test_init_is_out_of_reach"])
mutant("priority of init", (BUILD, "return put_which(b, 0 /* PRIO_PROCESS */);", "return bring_near(b, tail(b, SC_ALLOW));"),
       tests=[S + "test_init.py::test_init_is_out_of_reach"])
mutant("io priority of init", (BUILD, "return put_which(b, 1 /* IOPRIO_WHO_PROCESS */);", "return bring_near(b, tail(b, SC_ALLOW));"),
       tests=[S + "test_init.py::test_init_is_out_of_reach"])
mutant("the 32-bit table of calls", (BUILD, "put_if(&b, BPF_JEQ, audit_arch[arch], b.n - 1, kill);",
                                    "put_if(&b, BPF_JEQ, audit_arch[arch], b.n - 1, tail(&b, SC_ALLOW));"),
       tests=[S + "test_syscalls.py::test_refused"])
mutant("x32 calls", (BUILD, "int x32 = put_if(&b, BPF_JEQ, 0xffffffff, tail(&b, SC_ENOSYS), kill);", "int x32 = tail(&b, SC_ALLOW);"),
       tests=["unit:seccomp"])
mutant("a rule lifts an argument check", (BUILD, "class == SC_ENOSYS || class == SC_EPERM || class == SC_DENY ? SC_ALLOW", "true ? SC_ALLOW"),
       tests=["unit:seccomp"])
mutant("memfds where memory is only sampled", (LAUNCH, ".hide_memfd = !memory,", ".hide_memfd = false,"),
       tests=[I + "test_limits.py::test_no_memory_out_of_sight"])

# ---- set-up boxes ----
SETTLE, SETUP = "src/image/settle.c", "src/engine/setup.c"
mutant("a set-up box: owners and ids are tried", (BUILD, "class = rq->setup ? SC_ZERO : SC_ALLOW;", "class = SC_ALLOW;"),
       tests=[S + "test_setup.py::test_nothing_of_it_is_done"])
mutant("any box: owners and ids are lied about", (BUILD, "class = rq->setup ? SC_ZERO : SC_ALLOW;", "class = SC_ZERO;"),
       tests=[S + "test_setup.py::test_nothing_of_it_is_done"])
mutant("a set-up box: device nodes are tried", *((BUILD, f"class = SC_ARG_MKNOD_LIE{n};", "class = SC_ALLOW;") for n in (1, 2)),
       tests=[S + "test_setup.py::test_no_device_is_made_or_kept"])
mutant("any box may set set-id bits", (BUILD, "else if (rq->setup && class >= SC_ARG_MODE1", "else if (class >= SC_ARG_MODE1"),
       tests=[S + "test_files.py::test_setid_bits"])
mutant("a set-up box keeps the usual capabilities", (LOCKS, "return 1ULL << CAP_DAC_OVERRIDE | 1ULL << CAP_SETFCAP;", "return locks_cap_defaults();"),
       tests=[S + "test_setup.py::test_locks_read_back"])
mutant("set-id bits in a layer", (SETTLE, "if (fchmodat(dir, name, mode & 01777, 0) < 0)", "if (false)"), tests=["unit:settle"])
mutant("file capabilities in a layer", (SETTLE, 'return strcmp(attr, "security.capability") != 0 &&', "return"), tests=["unit:settle"], who="root")
mutant("sockets and devices in a layer", (SETTLE, "return unlinkat(dir, name, 0) < 0 ? failed(name, e) : 0;", "return 0;"), tests=["unit:settle"])
mutant("attributes of overlayfs in a layer", (SETTLE, 'if (strncmp(attr, "user.overlay.", 13) == 0)\n\t\treturn false;', ""), tests=["unit:settle"])
mutant("what is laid in for a setup stays", (SETUP, "drop_laid(s->draft.tree, &spec->root.entries[i], e) < 0", "false"),
       tests=[I + "test_setup.py::test_files_laid_for_the_run_are_the_images_own_again"])
mutant("the layer of another command is found", (SETUP, "\t\tkey_word(&b, *a);", "\t\tcontinue;"),
       tests=[I + "test_setup.py::test_the_second_time_it_is_there"])
mutant("the layer of another image is found", (SETUP, "key_word(&b, KEY_FORMAT);\n\tkey_word(&b, s->base->id);", "key_word(&b, KEY_FORMAT);"),
       tests=[S + "test_setup.py::test_a_poisoned_layer_is_not_found"])
mutant("what a setup writes has no limit", (LAUNCH, ": limits_watch_workspace(&b->limits, tree, e);", ": 0;"),
       tests=[I + "test_setup.py::test_a_command_that_fails_leaves_nothing"])

# ---- the listener ----
mutant("an escape is only refused",
       (NOTIFY, "case SC_END:\n\t\tend_box(n, req); /* never answered: the caller dies where it stands */\n\t\treturn;",
        "case SC_END:\n\t\trecord(n, req, (struct box_denied){ 0 });\n\t\tbreak;"),
       tests=[S + "test_escape.py::test_ends_the_box"])
mutant("mount is no escape", *in_policy("umount2"), tests=[S + "test_escape.py::test_ends_the_box"])
mutant("an escape taken away by a signal is none", (NOTIFY, "if (!sc_notifies_ordinary(sc_native(), n->request)) {", "if (false) {"),
       (LOCKS, "SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;", "SECCOMP_FILTER_FLAG_NEW_LISTENER;"),
       tests=[S + "test_escape.py::test_one_interrupted_call", S + "test_escape.py::test_storm_under_a_timer"])
mutant("connect is not mediated", ("src/box/mediate.c", "return id < 0 || mount_target(init, id, target) < 0 ? -1 : owner_of(spec, target);",
                                   "return id < 0 && mount_target(init, id, target) < 0 && owner_of(spec, target);"),
       tests=[S + "test_sockets.py::test_read_write_in_the_untrusted_profile"])
mutant("datagrams past the mediation", (BUILD, "PUT_IF_ANY(b, tail(b, SC_ALLOW), tail(b, SC_EPERM), 1 /* SOCK_STREAM */,",
                                        "PUT_IF_ANY(b, tail(b, SC_ALLOW), tail(b, SC_ALLOW), 1 /* SOCK_STREAM */,"),
       tests=[S + "test_sockets.py::test_read_write_in_the_untrusted_profile"])
mutant("FIFOs under untrusted", ("src/box/mount_scan.c", "if (scan_dir(&s, open_top(m), 0, e) < 0)", "if (false)"),
       tests=[S + "test_sockets.py::test_fifo_in_a_read_write_directory_under_untrusted"])

# ---- Landlock and cloche's own file ----
mutant("no Landlock", (LOCKS, "if (abi < 2) /* ABI 1", "if (abi < 100) /* ABI 1"), tests=[S + "test_sockets.py::test_abstract_sockets"])
# To execute a file is to read it as well.
mutant("Landlock: execute", (LOCKS, "SYS_LANDLOCK_FS_REFER | SYS_LANDLOCK_FS_EXECUTE |", "SYS_LANDLOCK_FS_REFER |"),
       (LOCKS, "SYS_LANDLOCK_FS_WRITE_FILE | SYS_LANDLOCK_FS_READ_FILE |", "SYS_LANDLOCK_FS_WRITE_FILE |"),
       tests=[S + "test_init.py::test_the_program_is_not_run_inside"])
mutant("device nodes, by Landlock and the filter", (LOCKS, "inside | SYS_LANDLOCK_FS_MAKE_CHAR | SYS_LANDLOCK_FS_MAKE_BLOCK", "inside"),
       *((BUILD, f"return put_mode(b, {n}, SC_SETID_BITS | SC_DEVICE_BIT);", f"return put_mode(b, {n}, SC_SETID_BITS);") for n in (1, 2)),
       tests=[S + "test_files.py::test_no_whiteouts"])
mutant("Landlock: abstract sockets", (LOCKS, "SYS_LANDLOCK_SCOPE_ABSTRACT_UNIX | ", ""), tests=[S + "test_sockets.py::test_abstract_sockets"])
mutant("cloche's file where Landlock is missing", ("src/box/self.c", "if (abi >= 2)", "if (abi >= 0)"),
       tests=[S + "test_no_landlock.py::test_runs_from_sealed_memory"])

# ---- init, and its life ----
mutant("init is dumpable", (INIT, " || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)", ")"),
       tests=[S + "test_init.py::test_init_is_out_of_reach", S + "test_init.py::test_init_is_not_dumpable_for_its_owner"])
mutant("no death signal", (INIT, "prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || ", ""),
       tests=[S + "test_lifecycle.py::test_a_stopped_init_dies_with_its_owner"])
mutant("neither death signal nor life pipe", (INIT, "prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || ", ""),
       (INIT, "if (n <= 0) /* the owner is gone */\n\t\t_exit(1);", "if (n <= 0)\n\t\tfd_close(&in->a->order);"),
       tests=[S + "test_lifecycle.py::test_a_stubborn_family_dies_with_its_owner"])
mutant("init's argv tells of the caller", (INIT, "memset(a->title, 0, a->title_len);", ";"),
       tests=[S + "test_init.py::test_init_shows_nothing_of_the_caller_in_argv"])
mutant("core dumps", (RLIMITS, "want_limit(&w[RLIMIT_CORE], 1, 1);", ";"), tests=[S + "test_ids.py::test_core_dumps_are_off"])
mutant("descriptors stay", (INIT, "if (sys_close_range(from, ~0U) < 0)", 'if (sys_close_range(from, ~0U) < 0 || open("/", O_RDONLY) < 0)'),
       (COMMAND, "if (sys_close_range(3, ~0U) < 0)", "if (false)"), tests=[S + "test_ids.py::test_only_three_descriptors"])
mutant("the caller's environment", ("src/engine/env.c", "if (env_base(p, e) < 0)\n\t\treturn -1;",
                                    "extern char **environ;\n\n\tif (env_base(p, e) < 0)\n\t\treturn -1;\n"
                                    "\tfor (char **v = environ; *v; v++)\n\t\tenv_set(p, *v, e);"),
       tests=[S + "test_ids.py::test_environment_is_an_allowlist"])
mutant("umask", (COMMAND, "umask(022);", ";"), tests=[I + "test_run_basics.py::test_what_a_process_inherits"])
mutant("session", (COMMAND, "if (setsid() < 0)", "if (false)"), tests=[I + "test_run_basics.py::test_what_a_process_inherits"])
mutant("signal mask", (COMMAND, "if (sigprocmask(SIG_SETMASK, &none, NULL) < 0)", "if (false)"), tests=[S + "test_ids.py::test_signal_state_is_fresh"])
mutant("ignored signals", (INIT, "if (init_signals(e) < 0 || ", "if (e->num && init_signals(e) < 0) return -1;\n\tif ("),
       (LAUNCH, " | SYS_CLONE_CLEAR_SIGHAND", ""), tests=[S + "test_ids.py::test_signal_state_is_fresh"])

# ---- whom the boxes of a session belong to ----
SPAWN, KEEPER = "src/cli/spawn.c", "src/cli/keeper.c"
mutant("a keeper outlives its spawner", (SPAWN, "prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != owner", "getppid() == 0"),
       tests=[S + "test_spawn.py::test_killed_at_any_moment"])
mutant("a box outlives the call that its loop dropped", (KEEPER, "return (struct box_order){ .kind = BOX_ORDER_CANCEL };",
                                                         "return (struct box_order){ .kind = BOX_ORDER_NONE };"),
       tests=[S + "test_spawn.py::test_a_call_whose_control_hangs_up_ends"])
mutant("a spawner outlives its loop", (SPAWN, "else if (r == 0 || (errno != ENOMEM && errno != ENOBUFS))\n\t\t\t\tbreak;",
                                       "else if (r == 0)\n\t\t\t\tp[0].fd = -1;"),
       tests=[S + "test_spawn.py::test_the_loop_is_killed"])
mutant("a keeper holds what the command prints through", ("src/box/owner.c", "\tfd_close(&c.out);\n\tfd_close(&c.err);\n", ""),
       tests=[S + "test_spawn.py::test_of_a_call_nobody_holds_the_streams_but_the_box"])
HOLDER, SHARED = "src/box/holder.c", S + "test_shared_mounts.py::"
mutant("what boxes share is bound, not an overlay", (PLAN, "plan_op(p, OP_LOWER, name)->source", "plan_op(p, OP_BIND, name)->source"),
       tests=[SHARED + "test_one_overlay_a_sandbox", SHARED + "test_sockets_and_fifos_of_the_host_are_not_reached_through_it"])
mutant("what boxes share is handed out writable", (HOLDER, "r = fds[have] < 0 ? -1 : 0;",
                                                   'r = fds[have] < 0 ? -1 : sys_mount_setattr(fds[have], "", AT_EMPTY_PATH, '
                                                   "&(struct sys_mount_attr){ .attr_clr = SYS_MOUNT_ATTR_RDONLY });"),
       tests=[SHARED + "test_nothing_can_be_changed_through_it"])
mutant("a workspace in memory without a size", (PLAN, "plan_tmpfs(p, name, spec->workspace_size, 0700, false);",
                                                     "plan_tmpfs(p, name, spec->workspace_size * 64, 0700, false);"),
       tests=[SHARED + "test_a_workspace_in_memory_has_its_size"])
mutant("a box without its workspace goes on without", (PLAN, "if (spec->workspace_size && spec->workspace_mount < 0) {", "if (false) {"),
       (PLAN, "m->workspace && spec->workspace_size;", "m->workspace && spec->workspace_mount >= 0;"),
       tests=[SHARED + "test_without_who_holds_it_no_box_has_another_workspace"])
mutant("the holder is its caller", (HOLDER, "if (geteuid() != s->outer_uid &&", "if (false &&"), tests=[SHARED + "test_one_overlay_a_sandbox"], who="root")
mutant("the holder keeps the caller's descriptors", (HOLDER, "sys_close_range(SOCK + 1, ~0U) < 0", "false"),
       tests=[SHARED + "test_who_holds_it_is_the_boxs_own_user_and_holds_nothing_else"], who="root")
mutant("the holder keeps the host's mounts", (HOLDER, "ops_run(p, &w.err) < 0 ||\n\t    ops_detach(p, &w.err) < 0", "ops_run(p, &w.err) < 0"),
       tests=[SHARED + "test_who_holds_it_is_the_boxs_own_user_and_holds_nothing_else"], who="root")
mutant("a new keeper holds what another call prints through", (SPAWN, "\t\tspawn_fds_close(f);\n\t\tfor", "\t\tfor"),
       tests=[S + "test_spawn.py::test_of_a_call_nobody_holds_the_streams_but_the_box"])
mutant("words that their sender can change",
       ("src/base/sealed.c", "if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) < 0)", "if (fstat(fd, &st) < 0)"),
       tests=[I + "test_spawn.py::test_words_that_could_change_are_refused", "unit:spawn_proto"])
mutant("the code's file is in a directory of the caller's", ("src/box/spec.h", '"dev/cloche"', '"run/x"'),
       (PLAN, "\tplan_code(p, spec);\n", ""),
       tests=[I + "test_spawn.py::test_code_is_in_no_words_and_in_no_file"])

# ---- the file system ----
for mask, kind in (("keys", "false"), ("kallsyms", "false"), ("cmdline", "false"), ("partitions", "false"), ("diskstats", "false"),
                   ("config.gz", "false"), ("modules", "false"), ("latency_stats", "false"), ("sched_debug", "false"), ("fs", "true"),
                   ("acpi", "true"), ("bus", "true"), ("scsi", "true"), ("asound", "true")):
    if here("/proc/" + mask):
        mutant(f"mask of /proc/{mask}", (PLAN, f'\t{{ "proc/{mask}", {kind} }},\n', ""),
               tests=[S + f"test_files.py::test_proc_masked[/proc/{mask}]"])
mutant("mask of /proc/key-users", (PLAN, '\t{ "proc/key-users", false },\n', ""), tests=[S + "test_files.py::test_key_users_are_masked"])
mutant("the host's boot id", (PLAN, "for (size_t i = 0; i < n; i++) {\n\t\tstruct op *op = plan_op(p, OP_VIEW",
                              "for (size_t i = 1; i < n; i++) {\n\t\tstruct op *op = plan_op(p, OP_VIEW"),
       tests=[S + "test_files.py::test_boot_id_is_not_the_hosts"])
mutant("/proc/sys is writable", (PLAN, '\tplan_op(p, OP_READONLY, "proc/sys");\n', ""), tests=[S + "test_files.py::test_kernel_settings_are_not_writable"])
mutant("processes of others in /proc", (PLAN, 'plan_op(p, OP_PROC, "proc")->text = "hidepid=2";', 'plan_op(p, OP_PROC, "proc")->text = "hidepid=0";'),
       tests=[S + "test_init.py::test_init_is_not_to_be_seen"])
mutant("one device more", (PLAN, '"urandom", "tty" };', '"urandom", "tty", "kmsg" };'), tests=[S + "test_files.py::test_dev_is_exact"])
mutant("the old root stays", (OPS, 'if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)', 'if (chdir("/") < 0)'),
       tests=[S + "test_files.py::test_nothing_lies_over_the_root"])
mutant("read-only by bind",
       ("src/box/ops_overlay.c", 'r = mount("cloche", at, "overlay", MS_RDONLY | MS_NOSUID | MS_NODEV, lower);', "r = -1, errno = EINVAL;"),
       tests=[S + "test_sockets.py::test_through_a_read_only_directory"])
mutant("read-only directories by bind, writable", (PLAN, "if (m->kind == BOX_MOUNT_DIR && !m->rw) {", "if (false) {"),
       (PLAN, "(m->rw ? 0 : SYS_MOUNT_ATTR_RDONLY);", "0;"), tests=[I + "test_mounts.py::test_volume_rw_and_ro"])
mutant("set-id and devices in mounts", (PLAN, "op->flags = SYS_MOUNT_ATTR_NOSUID | SYS_MOUNT_ATTR_NODEV |\n\t\t\t    (m->rw", "op->flags = (m->rw"),
       tests=[S + "test_files.py::test_mounts_are_nosuid_nodev"])
mutant("what covers /proc is taken off to be writable", (OPS, "if (st.st_dev != root.st_dev || st.st_ino == root.st_ino)\n\t\treturn 0;\n", ""),
       tests=[S + "test_image.py::test_homes_that_cover"])
mutant("an image's own /dev and /proc", (PLAN, 'op->laid = p->root_overlay && strncmp(path, "dev/", 4) != 0;', "op->laid = false;"),
       tests=[S + "test_image.py::test_dev_and_proc_are_cloches"])
mutant("targets over an image's links", ("src/box/mount_target.c", "r = layers_resolve(&spec->root.layers, m->dst, dst);", "r = 0;"),
       tests=[I + "test_image_run.py::test_layers_as_one_tree"])
mutant("set-id and devices in the root", ("src/box/ops_impl.h", "#define FIXED_FLAGS (MS_NOSUID | MS_NODEV)", "#define FIXED_FLAGS 0"),
       tests=[S + "test_files.py::test_mounts_are_nosuid_nodev"])
mutant("a writable root", (PLAN, "p->root_readonly = true;", ";"), tests=[I + "test_run_basics.py::test_read_only_root"])
mutant("a source that changed", ("src/box/mount_check.c", "if (st.st_dev != m->dev || st.st_ino != m->ino ||", "if (false ||"),
       tests=[S + "test_rootfs.py::test_parent_of_the_source_swapped", "unit:mount_check"])

# ---- reading what registries send ----
CONFINE, REGISTRY, AUTH, PULL = (f"src/image/{n}.c" for n in ("confine", "registry", "auth_header", "pull"))
mutant("cloche-image without Landlock", (CONFINE, "return landlock(how, e) < 0 || seccomp(", "return seccomp("), tests=["unit:confine"])
mutant("cloche-image without seccomp", (CONFINE, "landlock(how, e) < 0 || seccomp(how->work, e) < 0 ? -1 : 0", "landlock(how, e)"), tests=["unit:confine"])
mutant("sockets where layers are unpacked", (CONFINE, "\t{ SYS_umask },", "\t{ SYS_umask },\n\t{ SYS_socket },"), tests=["unit:confine"])
mutant("children of the process that downloads", (CONFINE, "{ SYS_clone, HAS_BITS, 0, CLONE_THREAD }", "{ SYS_clone }"), tests=["unit:confine"])
mutant("the download is not locked in", (PULL, "\t\tr = img_confine(&how, e);", "\t\tr = 0;"), image=True,
       tests=[I + "test_pull_protocol.py::test_its_processes_are_locked_in"])
mutant("a password for every realm", (AUTH, "\t\t\treturn true;\n\treturn false;", "\t\t\treturn true;\n\treturn true;"), tests=["unit:auth"])
mutant("a password for where a redirect leads", (REGISTRY, "f->foreign || !img_origin_same(&from, &to)", "f->foreign"), image=True,
       tests=[I + "test_pull_protocol.py::test_a_redirect_elsewhere_goes_without_the_password"])
mutant("plain HTTP from everywhere", ("src/image/http.c", '!strcmp(o.scheme, "http") && img_host_loopback(o.host)', '!strcmp(o.scheme, "http")'),
       tests=["unit:registry"])
mutant("certificates of anybody", ("src/image/http.c", "CURLOPT_SSL_VERIFYPEER, local ? 0L : 1L", "CURLOPT_SSL_VERIFYPEER, 0L"), image=True,
       tests=[I + "test_pull_protocol.py::test_a_private_authority"])
mutant("a blob's digest", ("src/image/pull_layers.c", "if (!strcmp(digest, l->blob->digest)) {", "if (*digest) {"), image=True,
       tests=[I + "test_pull_protocol.py::test_wrong_answers"])
mutant("a layer's diff id", ("src/image/stack.c", "if (strcmp(r->decoded.out_digest, diff) != 0)", "if (!diff)"), image=True,
       tests=[I + "test_pull_protocol.py::test_a_layer_that_is_not_what_the_config_says"])

# ---- what may not be shared ----
mutant("system paths", ("src/box/mount_check.c", "\tif (r) {\n\t\tdeny_source(",
                         "\tif (r && r->kind == RULE_ENV) {\n\t\tdeny_source("),
       tests=["unit:mount_rules"])
mutant("places known by inode", ("src/box/mount_rules.c", "if (c->known[i].dev == st.st_dev && c->known[i].ino == st.st_ino &&", "if (!c->n_known &&"),
       tests=["unit:mount_rules"])
mutant("single sockets", ("src/box/mount_check.c", "\tif (!S_ISREG(mode))", "\tif (!S_ISREG(mode) && S_ISBLK(mode))"),
       tests=[S + "test_sockets.py::test_a_single_socket_is_refused"])
mutant("file systems of the kernel's", ("src/box/mount_below.c", "if (strcmp(info.type, kernels_own[i]) == 0)", "if (!info.type[0])"),
       tests=[I + "test_mounts_below.py::test_a_file_system_of_the_kernels_is_refused"])

# ---- limits: groups ----
mutant("cgroup1: the box does not enter", (RLIMITS, 'ssize_t w = write(fds[i], "0", 1);\n\n\t\tif (w != 1) {\n\t\t\terr_sys',
                                          'ssize_t w = 1;\n\n\t\tif (w != 1) {\n\t\t\terr_sys'),
       tests=[I + "test_endings.py::test_oom"], who="root")
mutant("cgroup1: memory", (CG1, 'group_set(l->dir[CG1_MEMORY], "memory.limit_in_bytes", want, &got) < 0', "(got = want) != want"),
       (CG1, 'if (group_set(l->dir[CG1_MEMORY], "memory.memsw.limit_in_bytes", want, &swap) == 0) {', "if ((swap = got) == got) {"),
       tests=[I + "test_endings.py::test_oom"], who="root")
mutant("cgroup1: pids", (CG1, 'group_set(l->dir[CG1_PIDS], "pids.max", want + LIMIT_INIT_PIDS, &got) < 0', "(got = want + LIMIT_INIT_PIDS) == 0"),
       tests=[I + "test_limits.py::test_pids_cap_is_an_event_and_no_fault"], who="root")
mutant("cgroup1: cpus", (CG1, 'group_set(l->dir[CG1_CPU], "cpu.cfs_quota_us", quota, &got) < 0', "(got = quota) == 0"),
       tests=[I + "test_limits.py::test_cpu_quota_is_set_in_the_kernel"], who="root")
mutant("cgroup1: a file stays open while its group goes", (CG1, "\tfd_close(&l->dir[SLOT_OOM]);\n\tfd_close(&l->event_fd);\n\tfor", "\tfor"),
       tests=[I + "test_many.py::test_the_kernel_caches_nothing_of_a_box"], who="root")
mutant("cgroup1: whose kill it was", (CG1, 'return group_counter(text, "oom_kill", ret);', "return group_counter(text, \"under_oom\", ret);"),
       tests=[I + "test_endings.py::test_oom"], who="root")
mutant("cpus by affinity", (RLIMITS, "if (spec->limits.cpus > 0 && narrow(", "if (spec->limits.cpus < 0 && narrow("),
       tests=[I + "test_run_basics.py::test_cpus_are_told_to_programs"])

# ---- limits: groups of cgroup v2 ----
V2 = I + "test_cgroup2.py::"
ASKED, SEEN, PARTIAL = (V2 + t for t in ("test_the_kernel_holds_what_was_asked", "test_the_box_sees_its_own_group_and_no_more", "test_memory_without_pids"))


def delegated(name, *edits, test=ASKED, place="delegated"):
    mutant("cgroup2: " + name, *edits, tests=[test], place=place)


delegated("memory", (CG2, 'if (group_set(dir, "memory.max", want, &got) < 0)', "if ((got = want) != want)"))
delegated("swap", (CG2, 'if (group_set(dir, "memory.swap.max", 0, &v) < 0) {', "if ((v = 0) != 0) {"))
delegated("a kill of the whole group", (CG2, 'if (group_set(dir, "memory.oom.group", 1, &v) < 0 && errno != ENOENT)', "if (false)"))
delegated("pids", (CG2, 'if (group_set(l->dir[SLOT_GROUP], "pids.max", want + LIMIT_INIT_PIDS, &got) < 0)',
                   "if ((got = want + LIMIT_INIT_PIDS) == 0)"))
delegated("cpus", (CG2, 'if (fd_write_file_at(l->dir[SLOT_GROUP], "cpu.max", asked) < 0 ||', "if ("),
          (CG2, "if (strcmp(asked, got) != 0)", "if (false)"), test=V2 + "test_cpu_quota_is_in_the_group", place="root")
delegated("weight of io", (CG2, 'if (fd_write_file_at(l->dir[SLOT_GROUP], "io.weight", text) < 0 ||', "if ("),
          (CG2, 'if (!group_counter(text, "default", &got) || got != weight)', "if (false)"),
          test=V2 + "test_io_weight_is_in_the_group", place="root")
for what, old in (("memory", "if (got > want || want - got >= page)"), ("swap", "} else if (v != 0) {"),
                  ("pids", "if (got != want + LIMIT_INIT_PIDS)"), ("cpus", "if (strcmp(asked, got) != 0)"),
                  ("io weight", 'if (!group_counter(text, "default", &got) || got != weight)')):
    mutant(f"cgroup2: what the kernel made of it ({what})", (CG2, old, "} else if (false) {" if old[0] == "}" else "if (false)"),
           tests=["unit:limits_live"])
delegated("whose kill it was", (CG2, 'return group_counter(text, "oom_kill", ret);', 'return group_counter(text, "low", ret);'),
          test=V2 + "test_every_process_is_born_inside")
delegated("the group stays", (CG2, "group_remove(l->parent[SLOT_GROUP], l->dir[SLOT_GROUP], l->name);", ";"),
          test=V2 + "test_every_process_is_born_inside")
delegated("what a killed cloche left stays",
          (CG2, "return l->parent[SLOT_GROUP] >= 0 ? group_sweep(l->parent[SLOT_GROUP], max) : 0;", "return l && max ? 0 : 0;"),
          test=V2 + "test_a_killed_cloche_leaves_an_empty_group_to_the_next")
delegated("the box is born outside", (LAUNCH, "args->flags |= SYS_CLONE_INTO_CGROUP;", ";"))
delegated("no cgroup namespace", (INIT, "unshare(CLONE_NEWCGROUP) < 0", "false"), test=SEEN)
delegated("the whole tree is mounted", (INIT, "if (a->plan->own_group && init_cgroupns(e) < 0)\n\t\treturn err_at(e, STAGE_NAMESPACE);\n", ""),
          (INIT, "\tmark(in, MARK_ROOT);\n", "\tmark(in, MARK_ROOT);\n\tif (a->plan->own_group && init_cgroupns(e) < 0)\n\t\treturn -1;\n"), test=SEEN)
delegated("the group's files are writable", (OPS, '"cgroup2", MS_RDONLY | MS_NOSUID', '"cgroup2", MS_NOSUID'), test=SEEN)
delegated("a missing controller is called enforced",
          (CG2, " &&\n\t\t    faccessat(l->dir[SLOT_GROUP], holds[i].file, W_OK, 0) == 0)", ")"),
          (CG2, 'if (group_set(l->dir[SLOT_GROUP], "pids.max", want + LIMIT_INIT_PIDS, &got) < 0)',
           'got = want + LIMIT_INIT_PIDS;\n\tif (group_set(l->dir[SLOT_GROUP], "pids.max", got, &got) < 0 && errno != ENOENT)'),
          test=PARTIAL, place="root")
delegated("half is enough for --require-limits", (LIMITS, "if (l->rest)\n\t\treturn err_set(", "if (l->rest && !l->rung)\n\t\treturn err_set("),
          (LIMITS, "if (!l->state[LIMIT_MEMORY].enforced || !l->state[LIMIT_PIDS].enforced)", "if (false)"), test=PARTIAL, place="root")
delegated("a controller that was taken away", (CG2, "\tlook_again(l);\n", ""), test=V2 + "test_a_controller_that_is_taken_away_is_told")
delegated("a named group that can't be used is passed over", (WHERE2, "\t\te->kind = ERR_REFUSED;\n\t\treturn -1;\n", ""),
          test=V2 + "test_a_named_group_is_used_or_nothing")
delegated("the way into a named group", (WHERE2, "|| enterable(real, e) < 0)", ")"), test=V2 + "test_a_group_that_cannot_be_entered", place="root")
delegated("a lone container stays as it was left", (CG2, "\tif (l->dir[SLOT_ASIDE] >= 0)\n\t\tstep_back(l);\n", ""),
          test=V2 + "test_alone_in_a_container", place="root")
mutant("--require-limits where nothing holds them", (LIMITS, "if ((want->supervised || want->require) && ", "if (want->supervised && "),
       (LIMITS, "return want->require ? held_by_kernel(l, want, e) : 0;", "return 0;"),
       tests=[G + "test_places.py::test_require_limits_runs_or_says_what_to_change"], place="loner")

# ---- limits: groups of a unit of the user's manager ----
SC, LOGIN = G + "test_scope.py::", "test_a_login_is_held_by_the_kernel"


def scope(name, *edits, test=LOGIN):
    mutant("scope: " + name, *edits, tests=[SC + test], place="session")


scope("the box does not enter", (SCOPE, "if (manager_attach(&manager, group, pid, e) < 0)\n\t\treturn -1;\n\tif (!is_in(", "if (!pid && !is_in("))
scope("memory", (CG2, 'if (group_set(dir, "memory.max", want, &got) < 0)', "if ((got = want) != want)"))
scope("pids", (CG2, 'if (group_set(l->dir[SLOT_GROUP], "pids.max", want + LIMIT_INIT_PIDS, &got) < 0)', "if ((got = want + LIMIT_INIT_PIDS) == 0)"))
scope("cpus", (CG2, 'if (fd_write_file_at(l->dir[SLOT_GROUP], "cpu.max", asked) < 0 ||', "if ("), (CG2, "if (strcmp(asked, got) != 0)", "if (false)"))
scope("no cgroup namespace", (INIT, "unshare(CLONE_NEWCGROUP) < 0", "false"))
scope("each start has its unit", (SCOPE, "\tcg2_close(l);\n\thang_up();", "\tcg2_close(l);\n\t(void)scope_retire();\n\thang_up();"),
      test="test_one_unit_is_kept_and_reused")
scope("gc stops a unit with boxes in it", (SCOPE, "flock(fd, LOCK_EX | LOCK_NB) == 0 && empty(fd) &&", "empty(fd) < 2 &&"),
      test="test_gc_stops_it_only_when_empty")
mutant("scope: what the manager says is believed", (SCOPE, "if (!is_in(l->dir[SLOT_GROUP], pid)) /*", "if (false) /*"),
       tests=[I + "test_bad_manager.py::test_one_that_moves_nobody_is_not_believed"], place="root")
mutant("scope: anybody's socket", ("src/base/dbus.c", "if (c.uid != geteuid() && c.uid != 0)", "if (false)"),
       tests=[I + "test_bad_manager.py::test_a_strangers_socket_is_not_talked_to"], who="root")
mutant("scope: a manager anywhere", (MANAGER, "strcmp(place.group + len - (sizeof(own_scope) - 1), own_scope) != 0", "len > sizeof(place.group)"),
       tests=[I + "test_bad_manager.py::test_one_outside_of_a_managers_group_is_not_believed"], who="root")

# ---- limits: without groups, and of the rest ----
mutant("supervised: memory", (SUPERVISED, "if (bytes > l->memory_cap) {", "if (bytes > ~0ull - 1) {"), tests=[I + "test_limits.py::test_supervised_memory"])
mutant("supervised: pids", (RLIMITS, "if (!w[RLIMIT_NPROC].set || w[RLIMIT_NPROC].hard > cap)", "if (false)"),
       tests=[I + "test_limits.py::test_pids_cap_is_an_event_and_no_fault"])
mutant("deadline", (MONITOR, "due = b->started_ns + l->timeout_us * 1000;", "due = b->started_ns + l->timeout_us * 100000;"),
       tests=[I + "test_endings.py::test_timeout"])
mutant("output", (LAUNCH, "relay_capture(&b->relays[i], s->limits.output, e) < 0", "relay_capture(&b->relays[i], s->limits.output * 64, e) < 0"),
       tests=[I + "test_io.py::test_cut_keeps_head_and_tail"])
mutant("size of the workspace", (LAUNCH, "return limits_watch_workspace(&b->limits, dir, e);", "return 0;"),
       tests=[I + "test_limits.py::test_workspace_max"])
mutant("size of files", (RLIMITS, "want_limit(&w[RLIMIT_FSIZE], l->file_size, l->file_size);", ";"), tests=[I + "test_limits.py::test_file_size"])
mutant("open files", (RLIMITS, "want_limit(&w[RLIMIT_NOFILE], l->open_files, l->open_files);", ";"), tests=[I + "test_limits.py::test_open_files"])
mutant("size of shared memory", (PLAN, 'plan_tmpfs(p, "dev/shm", spec->limits.shm, 01777, false);',
                                 'plan_tmpfs(p, "dev/shm", spec->limits.shm * 64, 01777, false);'),
       tests=[I + "test_limits.py::test_shm_size"])
mutant("files in shared memory", (PLAN, "(unsigned long long)(size / 4096 + 64), mode);", "(unsigned long long)(size + 64), mode);"),
       tests=[I + "test_limits.py::test_a_million_empty_files_are_enospc_and_no_oom"])
mutant("size of the root", (PLAN, '(unsigned long long)spec->limits.root,\n', '(unsigned long long)spec->limits.root * 64,\n'),
       tests=[I + "test_limits.py::test_root_of_the_box_has_a_size"])

# ---- files of a workspace, as seen from outside ----
WS, WIO, WLIST, WREPLACE, CHANGES = (f"src/session/{n}.c" for n in ("workspace", "workspace_io", "workspace_list", "workspace_replace", "changes"))
READ = "fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);"
mutant("links within the workspace are followed", ("src/base/path.c", "RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS", "RESOLVE_BENEATH"),
       tests=["unit:workspace_planted"])
mutant("a link at the last name is followed", (WIO, READ, READ.replace("O_NOFOLLOW | ", "")),
       (WIO, "S_ISREG(st.st_mode)) { /* a device", "true) { /* a device"), tests=["unit:workspace_planted"])
mutant("files are waited for", (WIO, READ, READ.replace("O_NONBLOCK | ", "")), tests=["unit:workspace_planted"])
mutant("anything is a file to read", (WIO, "S_ISREG(st.st_mode)) { /* a device", "true) { /* a device"),
       (WIO, "\tif (!S_ISREG(st.st_mode)) {\n", "\tif (false) {\n"), tests=["unit:workspace"])
mutant("anything is read, however large", (WIO, "if (length > max)", "if (false)"), tests=["unit:workspace"])
mutant("lists have no end", (WLIST, "f->n == SES_LIST_MAX || ", ""), tests=["unit:workspace"])
mutant("root is root in a workspace", (WS, ".give = geteuid() == 0,", ".give = false,"), tests=["unit:workspace_planted"], who="root")
mutant("a change is known by its size", (CHANGES, "x->ctime == y->ctime && ", ""), tests=["unit:changes"])
mutant("changes within a tick", (CHANGES, "\ttree_settle(dirfd, &c->before);\n", ""), tests=["unit:changes"], who="root")
mutant("a replacement that fails stays half done", (WREPLACE, "move_back(was, n, r->old, top) < 0 ? stuck(r, e) : -1;", "-1;"),
       tests=["unit:workspace_tree"], who="root")
mutant("what was replaced is removed last", (WREPLACE, "ses_remove_tree(fd, OLD) < 0", "ses_remove_tree(fd, PUT) < 0"), tests=["unit:workspace_tree"])
mutant("a fork has what its owner may not read", ("src/session/workspace_copy.c", "\tSES_AS_OWNER(from);\n", ""), tests=["unit:workspace_tree"],
       who="root")
mutant("archives of files may have anything", ("src/image/unpack.c", "check_plain(dir, name, en, e) < 0", "check_plain(dir, name, en, e) < -1"),
       tests=[I + "test_snapshot.py::test_refused"], image=True)
mutant("archives of files have no size", ("src/prog/image_snapshot.c", ".bytes = room(max),", ".bytes = room(img_unpack_default.bytes),"),
       tests=[I + "test_snapshot.py::test_bombs"], image=True)

# ---- sessions: what goes between the client and the boxes ----
SERVE = "src/session"
mutant("the queue of a session has no end", (f"{SERVE}/call.c", "s->queued >= s->queue_max", "false"),
       tests=[I + "test_serve_hard.py::test_the_queue_is_bounded"], image=True)
mutant("live output needs no acknowledgement", (f"{SERVE}/output.c", "o->s->acks && SES_WINDOW - o->unacked < n", "false"),
       tests=[I + "test_serve_hard.py::test_unacknowledged_output_holds_up_that_call_alone"], image=True)
mutant("live output is gathered for who does not read", (f"{SERVE}/output.c", "!out_room(&o->s->out)", "false"),
       tests=[I + "test_serve_hard.py::test_a_client_that_does_not_read_stops_the_command_and_costs_no_memory"], image=True)
mutant("payloads have no end", (f"{SERVE}/upload.c", "u->n + r->n > SPAWN_CODE_MAX", "false"),
       tests=[I + "test_serve_hard.py::test_a_payload_that_never_ends"], image=True)
mutant("payloads that wait have no bound", (f"{SERVE}/call.c", "s->held_bytes + r->n > SES_HELD_BYTES", "false"),
       (f"{SERVE}/upload.c", "s->held_bytes + r->n > SES_HELD_BYTES", "false"),
       tests=[I + "test_serve_hard.py::test_payloads_that_wait_are_bounded_together"], image=True)
mutant("fields that are not known are passed over",
       (f"{SERVE}/request.c", "if (!f)\n\t\t\treturn no_such", "if (!f)\n\t\t\tcontinue;\n\t\tif (!key)\n\t\t\treturn no_such"),
       tests=[I + "test_serve_hard.py::test_a_wrong_request[a field that is not known]"], image=True)
mutant("frames may be nested as deep as they like", (f"{SERVE}/frame.c", "depth > FRAME_DEPTH_MAX", "false"), tests=["unit:frame"], image=True)
mutant("anything of cloche's own can be a workspace",
       ("src/box/mount_rules.c", "if (at == path || strncmp(at - 1, owner, sizeof(owner) - 1) != 0)", "if (at == path)"),
       tests=["unit:mount_rules"])
mutant("a client that takes no answers has sent half a frame", (f"{SERVE}/serve.c", " && !s->unread && s->in_src.events & EPOLLIN", ""),
       tests=[I + "test_serve_hard.py::test_what_was_not_read_for_want_of_room_is_no_broken_frame"], image=True)
mutant("a set-up outlives its session", (f"{SERVE}/child.c", "if (j->how->die_with_us &&", "if (false &&"),
       tests=[I + "test_serve_setup.py::test_one_of_a_session_that_is_killed_is_gone_with_it"], image=True)
READS = "while (!s->ending && out_room(&s->out) && !s->stalled) {"
mutant("requests are read, room for answers or not", (f"{SERVE}/serve.c", READS, READS.replace(" && out_room(&s->out)", "")),
       tests=[I + "test_serve_hard.py::test_requests_wait_with_a_client_that_takes_no_answers"], image=True)
mutant("requests are read for a worker that stands still", (f"{SERVE}/serve.c", READS, READS.replace(" && !s->stalled", "")),
       (f"{SERVE}/serve.c", "out_room(&s->out) && !s->stalled ? EPOLLIN", "out_room(&s->out) ? EPOLLIN"),
       tests=[I + "test_serve_cancel.py::test_who_works_with_files_takes_what_it_can_and_no_more_is_read"], image=True)
mutant("a fork of a sandbox that is gone", (f"{SERVE}/sandbox.c", "\t\tfrom_is_gone(sb);\n", "\t\t;\n"),
       tests=[I + "test_serve_cancel.py::test_a_fork_of_a_sandbox_that_closes"], image=True)
mutant("a sandbox that closes takes more", (f"{SERVE}/sandbox.c", "if (sb && sb->state == SANDBOX_OPEN && !sb->closing)", "if (sb && !sb->open.id)"),
       tests=[I + "test_serve_hard.py::test_a_sandbox_that_closes_takes_nothing_more"], image=True)
mutant("a command's output has its end when all have closed it", (f"{SERVE}/output.c", "errno == EAGAIN && !t->of->ended", "errno == EAGAIN"),
       (f"{SERVE}/output.c", "t->left = (uint64_t)left;", "t->left = UINT64_MAX;"),
       tests=[I + "test_serve_hard.py::test_who_else_has_what_a_command_wrote_to_does_not_hold_up_its_end"], image=True)
mutant("a call that is answered is waited for", (f"{SERVE}/call.c", "if (!c->background || c->wait.id) {", "if (c->wait.id) {"),
       tests=[I + "test_serve_hard.py::test_only_what_was_begun_in_the_background_is_waited_for"], image=True)
mutant("input is taken before the last was", (f"{SERVE}/call_stdin.c", "if (c->in_pending.id) {", "if (false) {"),
       tests=[I + "test_serve_hard.py::test_input_before_the_last_was_taken"], image=True)
mutant("close leaves a set-up", (f"{SERVE}/setup.c", "\tchild_kill(u->pidfd);\n\tpending_drop", "\tpending_drop"),
       tests=[I + "test_serve_setup.py::test_close_ends_it"], image=True)
mutant("who works with files works on without a session", (f"{SERVE}/worker.c", "\tdie_with_loop();\n\tsignal", "\tsignal"),
       tests=[I + "test_restore_killed.py::test_nobody_works_on_for_a_session_that_was_killed"], image=True)
mutant("calls have no bound but the queue's", (f"{SERVE}/call.c", "s->calls >= SES_CALLS_MAX || ", ""),
       tests=[I + "test_serve_hard.py::test_calls_are_bounded_wherever_they_wait"], image=True)
mutant("requests without an answer have no bound", (f"{SERVE}/serve.c", "s->n_pending >= SES_PENDING_MAX", "false"),
       tests=[I + "test_serve_cancel.py::test_requests_without_an_answer_are_bounded"], image=True)
mutant("files are written, however many", (f"{SERVE}/worker.c", "w->n_writes < WRITES_MAX ?", "true ?"),
       tests=[I + "test_serve_cancel.py::test_a_file_whose_parts_still_come"], image=True)
mutant("operations on files wait, however many", (f"{SERVE}/files.c", "f->n_ops >= WORKER_OPS_MAX", "false"),
       tests=[I + "test_serve_cancel.py::test_no_more_wait_than_are_allowed"], image=True)
mutant("payloads are gathered, however many", (f"{SERVE}/upload.c", "s->n_uploads >= SES_UPLOADS_MAX", "false"),
       tests=[I + "test_serve_hard.py::test_a_payload_that_never_ends"], image=True)
mutant("what commands are to read has no bound", (f"{SERVE}/call_stdin.c", "c->s->held_bytes + r->n > SES_HELD_BYTES ||\n\t    ", ""),
       tests=[I + "test_serve_hard.py::test_payloads_that_wait_are_bounded_together"], image=True)
mutant("what nobody waits for has no bound", (f"{SERVE}/call.c", "if (s->kept_bytes > SES_KEPT_BYTES)", "if (false)"), tests=["unit:call"])
mutant("what nobody waits for is not counted", (f"{SERVE}/call.c", "c->s->kept_bytes += c->kept;", ""), tests=["unit:call"])
mutant("all calls together keep what they like", (f"{SERVE}/output.c", "o->s->stored_bytes >= SES_STORED_BYTES", "false"), tests=["unit:output"])
mutant("a set-up that is cancelled is killed before its box",
       (f"{SERVE}/setup.c", "child_end(u->pidfd); /* whoever", "child_kill(u->pidfd); /* whoever"),
       tests=[I + "test_serve_setup.py::test_who_makes_it_is_asked_and_not_killed"], image=True)
mutant("a set-up's variables are its maker's", (f"{SERVE}/setup.c", "stpcpy(stpcpy(at, SETUP_ENV), o->env[i])", "stpcpy(at, o->env[i])"),
       tests=[I + "test_serve_setup.py::test_the_commands_variables_are_its_own"], image=True)
mutant("a session's variables are a set-up's",
       (f"{SERVE}/setup.c", "if (strncmp(environ[i], SETUP_ENV, strlen(SETUP_ENV)) != 0)", "if (*environ[i])"),
       tests=[I + "test_serve_setup.py::test_the_commands_variables_are_its_own"], image=True)
# ---- options of a sandbox, and their configuration ----
mutant("an image's python compiles under no AppArmor profile",
       ("src/cli/run_image.c", "o->request.apparmor ? apparmor : NULL", "*apparmor == '+' ? apparmor : NULL"),
       tests=[I + "test_bytecode.py::test_under_the_callers_profile"], image=True)
mutant("set-ups are under no AppArmor profile", ("src/session/options.c", '{ "cpus", "apparmor", "image_timeout_s" }', '{ "cpus", "image_timeout_s" }'),
       tests=["unit:options"])
OREAD, YAML = "src/session/options_read.c", "src/session/yaml_read.c"
mutant("a mount's path holds another mount", (OREAD, "if (strchr(src, ':') || strchr(dst, ':'))", "if (false)"), tests=["unit:options"])
mutant("a string ends at its NUL", (OREAD, "strlen(s) == json_string_length(v) && json", "json"), tests=["unit:options"])
mutant("what comes later is passed over", (OREAD, "\tif (same)\n", "\tif (true)\n"), tests=["unit:options"])
mutant("any workspace is made", ("src/session/options_workspace.c", "rule = mount_rules_path(&check.rules, path, true);", "rule = NULL;"),
       tests=["unit:options"])
mutant("a key of the configuration twice", (YAML, "if (strcmp(before->key, s) == 0)", "if (false)"), tests=["unit:config"])
mutant("anchors in the configuration", (YAML, "\tif (anchor)\n", "\tif (false)\n"), tests=["unit:config"])
mutant("a configuration without end", (YAML, "if (++r->nodes > YAML_NODES_MAX)", "if (false)"), tests=["unit:config"])
mutant("layers of the host image are a root", ("src/image/record.c", 'if (!value || strcmp(value, "host") != 0)', "if (false)"),
       tests=["unit:record"])
mutant("what setup installed can be written", (PLAN, "spec->deps_writable ? UPPER_SCRATCH", "true ? UPPER_SCRATCH"),
       tests=[I + "test_setup_host.py::test_what_was_installed_is_there_read_only"])

# ---- sessions: what an attack has found ----
HELD = S + "test_session.py::test_"
mutant("a workspace is whatever stands at its path", (f"{SERVE}/worker.c", "if (strcmp(place, o->place) != 0)", "if (false)"),
       tests=[HELD + "a_workspace_within_anothers_can_not_be_turned_elsewhere"], image=True)
mutant("archives lie where boxes write", (f"{SERVE}/worker_tree.c", "if (path_canonical(part, at) == 0 && path_within(at, place)) {", "if (false) {"),
       tests=[HELD + "archives_are_not_in_the_reach_of_boxes"], image=True)
mutant("close waits for a call that nobody asks for", (f"{SERVE}/call.c",
        "\tif (unwanted(c))\n\t\tcall_drop(c);\n\telse\n\t\tcall_cancel(c);", "\tcall_cancel(c);"),
       tests=[HELD + "close_does_not_wait_for_a_call_that_nobody_asks_for[has ended]"], image=True)
mutant("a cancel needs room", (f"{SERVE}/call.c", "(void)shutdown(c->control, SHUT_WR);", ";"),
       tests=[HELD + "a_cancel_finds_its_way_through_any_number_of_orders"], image=True)
mutant("the last signal is none", (f"{SERVE}/call.c", "c->signals && sig <= 64", "c->signals && sig < 64"),
       tests=[HELD + "the_last_signal_is_one_too"], image=True)
mutant("a sandbox's options are a line, whatever their size", (f"{SERVE}/serve.c", "json_dumpb(info, NULL, 0, JSON_COMPACT) < FRAME_LINE_MAX - 128", "true"),
       tests=[HELD + "options_as_large_as_a_line_do_not_end_the_session"], image=True)
PORTS = HELD + "ports_are_this_machines_alone_and_bounded"
mutant("ports are open to the network", (f"{SERVE}/port.c", "htonl(INADDR_LOOPBACK)", "htonl(INADDR_ANY)"), tests=[PORTS], image=True)
mutant("ports have no bound", (f"{SERVE}/port.c", "n < PORTS_MAX ?", "true ?"), tests=[PORTS], image=True)
mutant("connections to one port have no bound", (f"{SERVE}/port.c", "p->n_conns >= CONNS_MAX || ", ""), tests=[PORTS], image=True)
HEARD = HELD + "a_box_that_has_closed_is_heard_to_its_end"
mutant("what a closed end left waits for a word of it", (f"{SERVE}/port.c", "turn < TURNS || x->gone[0] || x->gone[1]", "turn < TURNS"),
       tests=[HEARD], image=True)
mutant("a closed end is told of for ever", (f"{SERVE}/port.c", "if (events & (EPOLLHUP | EPOLLERR)) {", "if (false) {"), tests=[HEARD], image=True)
mutant("no descriptor is kept for what finds none", (f"{SERVE}/port.c", "|| s->spare < 0)", "|| true)"),
       tests=[HELD + "a_connection_for_which_there_is_no_descriptor_is_closed"], image=True)
mutant("connections take all descriptors", (f"{SERVE}/port.c", " || c->s->n_conns >= c->s->conns_max", ""),
       tests=[HELD + "connections_leave_descriptors_for_calls"], image=True)

EQUIVALENT = {
    "Landlock: writing, block devices, signals": "the mounts are read-only or the box's own, block devices need a capability of the host's, and no process "
                                                 "outside the pid namespace can be named: the second lock shows only where the first has a hole",
    "life pipe": "the death signal alone is late in 3 of 400 deaths: no test can wait for that; together they are a row",
    "targets opened inside the root": "a mount that a planted link leads elsewhere lands in a mount namespace that ends with the box, and what its "
                                      "ids may not write they may not write there either",
    "capset": "the bounding set is empty, so that the command's execve takes the rest",
    "chroot, sethostname, settimeofday and the other calls that need capabilities": "refused by the kernel as well, the capabilities being gone",
    "a fresh terminal system for each box": "the kernel has no other kind any more",
    "Landlock: device nodes; the filter: device nodes": "each refuses them where the other is gone; together they are a row",
    "cgroup.kill": "init's end takes the box with it, in a group or not: the file only spares the wait for it",
    "the event of memory.events": "the kernel kills init with the rest and the count is read at the end; the event is for the look at what filled the "
                                  "group, which may come too late anyhow",
    "a unit that is stopped between two steps of a start": "whether a test meets that moment is chance",
    "the lock of a living cloche's group": "the kernel removes no group with a process in it",
    "the mode of a draft": "the store is closed to others as well",
    "a spawner that reaps what its keepers leave": "mutants run in a pid namespace of their own, where each keeper waits for its box's first process",
    "setgroups": "the kernel takes no map of an ordinary user's without it",
}

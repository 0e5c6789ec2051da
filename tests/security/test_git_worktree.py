"""T24: git in a linked worktree. With --git a commit works; what git on the host executes or believes can't be changed; and a repository is
shared only when it names the worktree in turn."""
import os
import subprocess

import boxlib
import pytest

ID = ("-c", "user.name=a", "-c", "user.email=a@b.invalid", "-c", "commit.gpgsign=false")
COMMIT = "echo text >file && git add file && git " + " ".join(ID) + " commit -q -m inside"


def git(*args, cwd=None):
    env = dict(boxlib.base_env(), GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null")
    r = subprocess.run(["git", *args], cwd=cwd, env=env, capture_output=True, text=True, timeout=boxlib.HANG, check=False)
    assert r.returncode == 0, (args, r.stderr)
    return r.stdout.strip()


def commit(repo, what):
    git(*ID, "commit", "-q", "--allow-empty", "-m", what, cwd=repo)


@pytest.fixture
def repo(ws):
    git("init", "-q", "-b", "main", "repo", cwd=ws)
    commit(ws / "repo", "first")
    return ws / "repo"


@pytest.fixture
def tree(repo, ws):
    """A linked worktree of `repo`, on a branch of its own."""
    git("worktree", "add", "-q", "-b", "work", ws / "tree", cwd=repo)
    return ws / "tree"


def own(repo):
    return repo / ".git/worktrees/tree"


def in_box(box, tree, script, *opts):
    return box("--git", "--workspace", tree, *opts, "sh", "-c", script)


def test_commit_in_a_linked_worktree(box, repo, tree):
    # the control: without the option git finds no repository, and a note says what would help
    r = box("--workspace", tree, "sh", "-c", COMMIT)
    assert r.rc == 128 and "not a git repository" in r.o.err, r
    assert any("--git" in n for n in r.o["notes"]), r.o["notes"]
    r = in_box(box, tree, COMMIT + " && git status --porcelain && git log --format=%s && git branch --list")
    assert (r.rc, r.o.fault, r.o["denied"], r.o.err) == (0, None, [], ""), r
    assert r.o.out.startswith("inside\nfirst\n"), r
    assert git("log", "--format=%s", "work", cwd=repo) == "inside\nfirst"
    git("fsck", "--strict", cwd=repo)
    assert git("status", "--porcelain", cwd=tree) == ""


def test_commit_in_a_worktree_of_a_bare_repository(box, repo, ws):
    git("clone", "-q", "--bare", repo, ws / "bare.git")
    git("worktree", "add", "-q", "-b", "work", ws / "tree", cwd=ws / "bare.git")
    # such a repository has no logs until the first commit in a worktree, and a box leaves nothing behind to make a mount fit
    refused(box, ws / "tree", "create it first: mkdir")
    assert not (ws / "bare.git/logs").exists()
    (ws / "bare.git/logs").mkdir()
    r = in_box(box, ws / "tree", COMMIT)
    assert (r.rc, r.o.err) == (0, ""), r
    assert git("log", "--format=%s", "work", cwd=ws / "bare.git") == "inside\nfirst"


def test_relative_worktree(box, repo, tree):
    """As git 2.48 writes them when asked to."""
    (tree / ".git").write_text("gitdir: ../repo/.git/worktrees/tree\n")
    (own(repo) / "gitdir").write_text("../../../../tree/.git\n")
    r = in_box(box, tree, COMMIT)
    assert (r.rc, r.o.err) == (0, ""), r
    assert git("log", "--format=%s", "work", cwd=repo) == "inside\nfirst"


# What a box would do so that git on the host runs its code, reads its files or commits elsewhere: $C is the repository, $G the worktree's part.
ATTACKS = {
    "config": "echo '[core] fsmonitor = touch /tmp/owned' >>$C/config",
    "config, replaced": "echo x >$C/new && mv $C/new $C/config",
    "hook": "printf '#!/bin/sh\\n' >$C/hooks/post-commit",
    "hooks, replaced": "mv $C/hooks $C/old && mkdir $C/hooks",
    "another hook directory": "mkdir $C/modules",
    "attributes": "mkdir -p $C/info && echo '* filter=x' >$C/info/attributes",
    "commondir": "echo /workspace >$G/commondir",
    "commondir, replaced": "rm -f $G/commondir && echo /workspace >$G/commondir",
    "commondir, renamed": "mv $G/commondir $G/x",
    "the way back": "echo /elsewhere/.git >$G/gitdir",
    "the worktree's part, replaced": "mv $G $C/worktrees/other",
    "another worktree's part": "mkdir $C/worktrees/other",
    "the file .git": "echo 'gitdir: /workspace/evil' >.git",
    "the file .git, replaced": "rm -f .git && mkdir .git",
    "the file .git, renamed": "mv .git x",
    "alternates": "echo /elsewhere/objects >$C/objects/info/alternates",
    "alternates, replaced": "mv $C/objects/info $C/objects/x && mkdir $C/objects/info",
    "objects, replaced": "mv $C/objects $C/x",
    "the main worktree's HEAD": "echo 'ref: refs/heads/work' >$C/HEAD",
}


@pytest.mark.parametrize("what", ATTACKS)
def test_what_the_host_believes_stays(box, repo, tree, what):
    script = f"C={repo}/.git; G={own(repo)}; export C G; " + ATTACKS[what]
    # the control: with the whole shared read-write and nothing held, it goes through
    copy = repo.parent / "copy"
    subprocess.run(["cp", "-a", repo, copy], check=True)
    plain = repo.parent / "plain"
    subprocess.run(["cp", "-a", tree, plain], check=True)
    r = box("--workspace", plain, "-v", f"{copy}:{repo}:rw", "sh", "-ec", script)
    assert r.rc == 0, r
    before = {p: p.read_bytes() for p in [*(repo / ".git").rglob("*"), tree / ".git"] if p.is_file()}
    r = in_box(box, tree, script + "\ntrue")
    assert r.rc == 0 and r.o.err, r  # each says that it may not
    after = {p: p.read_bytes() for p in [*(repo / ".git").rglob("*"), tree / ".git"] if p.is_file()}
    assert after == before
    assert git("log", "--format=%s", cwd=tree) == "first"


def refused(box, tree, *words):
    r = box("--git", "--workspace", tree, "true", json=False)
    text = r.err.decode()
    assert r.rc in (2, 125), r
    assert all(w in text for w in words), text


def test_a_planted_link_is_not_granted(box, repo, tree, ws):
    secret = ws / "elsewhere"
    secret.mkdir()
    (secret / "id").write_text("secret")
    for name in ("objects", "refs", "logs"):
        real = repo / ".git" / name
        real.rename(ws / name)
        real.symlink_to(secret)
        # the control: shared with -v, the same link leads there
        r = box("-v", f"{real}:/given:ro", "cat", "/given/id")
        assert r.o.out == "secret", r
        refused(box, tree, "link", name)
        real.unlink()
        (ws / name).rename(real)
    assert in_box(box, tree, COMMIT).rc == 0


def test_a_repository_that_does_not_name_the_worktree_is_not_granted(box, repo, tree, ws):
    """The worktree is the box's to write: it may claim to belong to any repository."""
    git("init", "-q", ws / "other")
    commit(ws / "other", "other")
    git("worktree", "add", "-q", ws / "other-tree", cwd=ws / "other")
    claim = (ws / "other-tree/.git").read_text()
    (tree / ".git").write_text(claim)
    refused(box, tree, "in turn")
    # a directory made to look like one, with a repository that leads on
    fake = tree / "worktrees/x"
    fake.mkdir(parents=True)
    (tree / ".git").write_text(f"gitdir: {fake}\n")
    (fake / "gitdir").write_text(f"{tree}/.git\n")
    (fake / "commondir").write_text(f"{ws}/other/.git\n")
    (fake / "HEAD").write_text("ref: refs/heads/main\n")
    refused(box, tree, "commondir")


def test_no_linked_worktree(box, repo, tree, ws):
    refused(box, repo, "directory")
    (ws / "empty").mkdir()
    refused(box, ws / "empty", "no .git")
    r = box("--git", "true", json=False)
    assert r.rc == 2 and b"--git needs --workspace" in r.err, r
    for text in ("", "gitdir:", "gitdir: ", "gitdir: /", "gitdir: /nowhere/worktrees/x\n", f"gitdir: {repo}/.git\n", "x" * 9000,
                 "gitdir: a\nb\n", f"gitdir: {own(repo)}\0x", "gitdir: " + "../" * 50 + "x"):
        (tree / ".git").write_text(text)
        refused(box, tree, "--git")
    (tree / ".git").unlink()
    (tree / ".git").symlink_to(own(repo))
    refused(box, tree, "--git")
    (tree / ".git").unlink()
    os.mkfifo(tree / ".git")
    refused(box, tree, "--git")


def test_a_config_of_the_worktrees_own_is_held_or_refused(box, repo, tree):
    git("config", "extensions.worktreeConfig", "true", cwd=repo)
    refused(box, tree, "config.worktree", "touch")
    (own(repo) / "config.worktree").touch()
    r = in_box(box, tree, f"echo x >{own(repo)}/config.worktree; rm -f {own(repo)}/config.worktree; " + COMMIT)
    assert r.rc == 0 and (own(repo) / "config.worktree").read_text() == "", r


def test_under_untrusted(box, tree, repo):
    r = in_box(box, tree, COMMIT, "--security-profile", "untrusted")
    assert (r.rc, r.o.fault) == (0, None), r
    assert git("log", "--format=%s", "work", cwd=repo) == "inside\nfirst"

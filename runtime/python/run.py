# Runs a call's code as `python3 -c` would: in __main__, from a file of the box's own memory, since words can be read by others. It runs with names of
# its own, of which `main` is the dictionary of __main__. Each word here costs its parsing at every call: what only a failure needs is in fails.py,
# which is the last word of the command. From Python 3.13 on linecache is there already, with the words after -c as "<string>".
import _imp, os, sys

with open("/dev/cloche/code", "rb") as file:
    source = file.read()
os.unlink(file.name)
fails = sys.argv.pop()


def remember(linecache):
    linecache.clearcache()
    text = source.decode("utf-8", "replace")
    linecache.cache["<code>"] = 0, None, [line + "\n" for line in text.split("\n")], "<code>"


# linecache takes milliseconds to load, and most code never needs it.
def find(module, *where):
    if module == "linecache":
        exec(fails, globals())
        return find_spec(module, *where)


# compile() could be told the name, but begins with making all classes of syntax trees, which takes longer than all of this.
def rename(frame, event, arg):
    if frame.f_locals is main:
        sys.settrace(None)
        _imp._fix_co_filename(frame.f_code, "<code>")


if "linecache" in sys.modules:
    remember(sys.modules["linecache"])
else:
    find.find_spec = find
    sys.meta_path.insert(0, find)
sys.settrace(rename)
try:
    exec(source, main)
except SystemExit:
    raise
except BaseException:
    sys.settrace(None)
    exec(fails, globals())
    show_own_part()
    raise

# What run.py, whose names it has, needs when code fails, or when something loads linecache.
def find_spec(module, path=None, target=None):
    sys.meta_path.remove(find)
    spec = next(filter(None, (f.find_spec(module, path, target) for f in sys.meta_path)), None)
    if spec and spec.loader:
        load = spec.loader.exec_module
        spec.loader.exec_module = lambda loaded: load(loaded) or remember(loaded)
    return spec


def show_own_part():
    hook, sys.excepthook = sys.excepthook, lambda *error: show(hook, *error)


def show(hook, kind, error, trace):
    while trace and trace.tb_frame.f_code.co_filename == "<string>":
        trace = trace.tb_next
    try:
        error = error.with_traceback(trace)
        if trace is None and isinstance(error, SyntaxError) and error.filename == "<string>":
            error.filename = "<code>"
        # Up to Python 3.12 the usual hook looks for lines in files alone. An interrupt keeps it: what loads here would make Python forget
        # that it has to end by the signal.
        if hook is sys.__excepthook__ and kind is not KeyboardInterrupt:
            import traceback

            traceback.print_exception(kind, error, trace)
            return
    except Exception:
        pass
    hook(kind, error, trace)

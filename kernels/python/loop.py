"""The event loop of a kernel: one, which outlives cells, and also runs between them."""
import sys

wire = part("wire")
# Imported when a loop is first needed: it costs as much as half of IPython.
asyncio = None
loop = None
# Whether the last run was cancelled by an interrupt.
interrupted = False


def get():
    """The loop; the one that a cell made its own, if it did."""
    global asyncio, loop
    if loop is None or loop.is_closed():
        import asyncio
        import warnings

        loop = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                loop = asyncio.get_event_loop()
            except RuntimeError:
                pass
        if loop is None or loop.is_closed():
            loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop


def run(thing, tells=False):
    """Runs until an awaitable is done; an interrupt cancels it.

    One that `tells` has told of the interrupt by itself, and its value counts.
    """
    global interrupted
    running = get()
    if asyncio.isfuture(thing):
        task = thing
    else:
        task = running.create_task(thing if asyncio.iscoroutine(thing) else wait(thing))
    try:
        return running.run_until_complete(task)
    except (KeyboardInterrupt, SystemExit) as error:
        if task.done():
            raise
        interrupted = True
        task.cancel()
        try:
            value = running.run_until_complete(task)
            if tells:
                return value
        except (asyncio.CancelledError, Exception) as cancelled:
            # Where it was waiting is what the user wants to see.
            raise error.with_traceback(cancelled.__traceback__) from None
        raise


async def wait(thing):
    return await thing


def idle():
    """Lets tasks go on until the guest says something."""
    if loop is None or loop.is_closed() or wire.received:
        return
    while True:
        heard = loop.create_future()
        try:
            loop.add_reader(3, lambda: heard.done() or heard.set_result(None))
            loop.run_until_complete(heard)
            return
        except NotImplementedError:
            return
        except (KeyboardInterrupt, SystemExit, Exception) as error:
            if loop.is_closed():
                return
            part("errors").elsewhere(error)
        finally:
            if not loop.is_closed():
                loop.remove_reader(3)
            sys.stderr.flush()

"""One GPU's limit as pure steps: (board, what is read) -> (board, what is to be written, or what has come of it).

A GPU is capped by its power limit, or by a clock lock where that does not work; either is judged by the watts that
follow. The caller (`limiter`) carries out a Write or Restore and hands in what came of it (`wrote`), until a step ends
with an Outcome or None. A way that does not work is restored before the next is tried. Only a value of ours is
replaced: a limit changed by another program is adopted as the new original. Nothing here sets more than the limit at
the start, unless asked to. A clock lock can be set and lifted but not read: one of an admin is lost, as is said.
"""

from dataclasses import dataclass, replace

from msgspec import Struct
from msgspec.structs import replace as replaced

from carbontui.power.backends import base
from carbontui.power.backends.base import REASON_POWER_CAP, DeviceError, DeviceInfo, RawReading
from carbontui.power.limit.leases import LeaseRecord, LowLimit, Now, Write
from carbontui.power.limit.steering import SETTLE_S, Steering, clocks_for
from carbontui.power.messages import Capability, Code, Outcome
from carbontui.text import boards

TOLERANCE_MW = 1000
"""Drivers round; a limit within one watt of ours counts as ours."""
EXAMPLE_SHARE = 0.8
"""Of the default limit: the cap in an example command. Training keeps most of its speed there."""
LIMIT_OVERSHOOT = 1.03
"""A board that draws more than this multiple of its limit is not held by it."""
CODES: dict[int, Code] = {
    base.NO_PERMISSION: "no_permission",
    base.NOT_SUPPORTED: "not_supported",
    base.GPU_IS_LOST: "lost",
    base.REFUSED: "foreign",
    base.HELD: "held",
    base.NOT_YET: "held",
}
LASTING = (base.NO_PERMISSION, base.NOT_SUPPORTED)
"""Refusals after which another way is tried."""
JUDGE_S = 2.0
"""Settled and still above the limit for this long: it has no effect."""
ADOPT_S = 0.5
"""A reading this soon after a write may have been taken before it."""
NAMED = 1.3
"""A board that reports a power cap as clock reason is trusted up to this multiple; above, it means another cap."""
AT_WORK_SHARE = 0.5
"""Share of the limit: a board that draws less is between two bursts, or parked."""
UNTRIED = Capability("unknown", "not tried yet")
UNREADABLE_LOCK = "a lock set before by an admin cannot be restored"
WARNING = f"clocks are locked instead ({UNREADABLE_LOCK})"


class Abandoned(Struct, frozen=True):
    """Why a way of capping is given up; taken up again once the board is restored."""

    outcome: Outcome
    watts: float
    cap: Capability | None = None
    """Whether watts can be capped here from now on; None: as before."""
    because: str = ""
    """Not empty: its clocks are locked next, for this reason."""
    notice: str = ""


@dataclass(frozen=True)
class BoardLimit:
    """What the agent knows of one GPU's limit."""

    info: DeviceInfo
    root: bool = False
    """Whether this process is root's, who may yet lack the permission in a container."""
    cap: Capability = UNTRIED
    """Whether watts can be capped here, by any actuator. "unknown" is probed again."""
    passing: Capability | None = None
    """Why `cap` is not known yet, as text: another job, a full disk, a driver that timed out."""
    limit: Capability | None = None
    """Whether the power limit itself works, on a board where clocks are locked instead."""
    notice: str = ""
    """A notice for the user while the condition lasts."""
    left_low: LowLimit | None = None
    """A limit that was already low before us, without a lease that explains it."""

    lease: LeaseRecord | None = None
    """The limit set by us, or by a dead agent that we took over from; None: none."""
    inherited: bool = False
    """The lease is still that of the dead agent."""
    found_mw: int | None = None
    """The limit to restore: the original one, or one set since by another program. 0: the board has none."""
    start_mw: int | None = None
    """The limit at the start."""
    rounded_mw: tuple[int, int] | None = None
    """The limit last set, and what the board made of it: some take whole steps alone."""
    set_at_s: float | None = None
    binding: bool = False
    """The board drew more than the limit when it was set, and has not yet been seen to comply."""
    proven: bool = False
    """The limit has been seen to hold."""
    over_since_s: float | None = None

    because: str = ""
    """Why clocks are locked here instead; "": the power limit is used."""
    clocks: Capability | None = None
    """The result of using a clock lock on this board; None: not tried."""
    steering: Steering | None = None
    sm_mhz: float | None = None
    """The clock at the last reading."""
    module: bool = False
    """Only the watts of a whole module can be read, its CPU included."""
    abandoned: Abandoned | None = None
    """A way of capping that did not work, until the board is restored and the next has been tried."""

    @property
    def ceiling_mw(self) -> int | None:
        """Upper bound without allow_raise: the limit at the start, or less if another program has lowered it."""
        return min((limit for limit in (self.start_mw, self.found_mw) if limit), default=None)

    @property
    def found_w(self) -> float | None:
        return self.found_mw / 1000 if self.found_mw else None

    @property
    def top_w(self) -> float | None:
        """The highest limit that is set here without an explicit request to raise it."""
        return self.ceiling_mw / 1000 if self.ceiling_mw else None

    @property
    def clocks_w(self) -> float | None:
        """Watts that a clock lock of ours is steered to."""
        return self.steering.wanted_w if self.steering else None

    @property
    def proving(self) -> bool:
        """Whether a cap is in force whose effect has not been seen yet."""
        return self.steering.proving if self.steering else self.binding

    @property
    def warning(self) -> str:
        """The notice, or that its limit was low before us; "" without either."""
        return self.notice or (self.left_low.text if self.left_low else "")

    def shown(self) -> Capability:
        """`cap`, or why it is not known yet."""
        return self.passing if self.cap.support == "unknown" and self.passing is not None else self.cap

    def clocks_cap(self) -> Capability:
        """Whether a clock lock can replace the limit; never probed, since an earlier lock could not be restored."""
        top, support, fix = self.info.clock_max_mhz, self.cap.support, ""
        if self.clocks is not None and not self.info.mig:
            return self.clocks
        if self.info.mig or not top:
            support = "not_supported"
            why = "MIG slices share this GPU" if self.info.mig else "no clock range is named"
        elif self.because:
            support, why = "yes", f"up to {top} MHz, not tried yet; {UNREADABLE_LOCK}"
        elif support == "yes":
            why = f"up to {top} MHz; used only where the power limit does not work"
        else:
            support, why, fix = self.shown().support, "it takes the permission of the power limit", self.shown().fix
        return Capability(support, why, fix)

    def outcome(self, ok: bool, code: Code, text: str = "", fix: str = "", watts: float | None = None) -> Outcome:
        """For the supervisor; the caller adds the limit in force."""
        return Outcome(self.info.uuid, ok, code, watts, text, fix)


Step = tuple[BoardLimit, Write | Outcome | None]
Refusal = tuple[BoardLimit, Capability]


def cap(board: BoardLimit, watts: float, now: Now, *, allow_raise: bool) -> Step:
    """Cap a board at these watts. Idempotent."""
    info, lease, current = board.info, board.lease, now.limit_mw
    if lease is not None and lease.clocks_mhz is not None and not board.because:
        # the agent that left this lease had found that the power limit does not work
        board = by_clocks(board, "its power limit did not work", Capability("no_effect", "it did not work before"))
    if board.because:
        return _lock(board, watts, now)
    why = no_range(info) or ("" if board.ceiling_mw else "its power limit cannot be read")
    if why:
        return board, board.outcome(False, "not_supported", why)
    if current is None:
        return _refused(board, now, watts)
    low, high, ceiling = info.limit_min_mw or 0, info.limit_max_mw or 0, board.ceiling_mw or 0
    top = high if allow_raise else min(ceiling, high)
    wanted = min(round(watts * 1000), top)
    if round(watts * 1000) < low:
        return board, board.outcome(False, "out_of_range", f"this GPU takes {low / 1000:.0f}-{top / 1000:.0f} W")
    if lease is None and wanted == board.found_mw:
        text = _lower(watts, wanted, wanted) or "this is the limit that was found"
        return board, board.outcome(True, "kept", text)
    if lease is not None and (near(current, wanted) or board.rounded_mw == (wanted, current)):
        board = replace(board, notice="", cap=Capability("yes", span(info)))  # it answers again, if it did not
        return board, Write((current,)) if board.inherited else board.outcome(True, "kept")
    return board, Write((wanted,) if lease is None else (current, wanted), wanted, asked_w=watts)


def restore(board: BoardLimit, now: Now) -> Step:
    """Restore the limit, if one of ours is in force."""
    lease = board.lease
    if lease is None:
        return _restored(board, now)
    if lease.clocks_mhz is not None:
        return board, Write(mhz=0)
    if now.limit_mw is None:
        return _not_restored(board, now)
    return board, Write(limit_mw=None if near(now.limit_mw, lease.before_mw) else lease.before_mw)


def observe(board: BoardLimit, raw: RawReading, now_s: float) -> Step:
    """Judge what is in force by a reading: a cap without effect is given up, a clock lock is moved."""
    if (board.sm_mhz, board.module) != (raw.sm_mhz, module := raw.kind == "module"):
        board = replace(board, sm_mhz=raw.sm_mhz, module=module)
    now = Now(now_s, raw.limit_mw, raw.power_w)
    if board.steering is not None:
        return _steer(board, board.steering.sample(raw.power_w, raw.sm_mhz, now_s), now)
    limit_mw, power_w = raw.limit_mw, raw.power_w
    if board.lease is None or board.set_at_s is None or limit_mw is None or power_w is None:
        return board, None
    if board.proven or now_s - board.set_at_s < SETTLE_S:
        return board, None
    named = bool((raw.reasons or 0) & REASON_POWER_CAP) and power_w * 1000 <= limit_mw * NAMED
    since_s = None
    if board.module:
        # watts that include a CPU cannot judge a GPU limit
        board = replace(board, binding=False)
    elif named or AT_WORK_SHARE * limit_mw <= power_w * 1000 <= limit_mw * LIMIT_OVERSHOOT:
        # watts below a limit that did not bind prove nothing: more may be drawn later
        board = replace(board, proven=named or board.binding, binding=False)
    elif power_w * 1000 > limit_mw * LIMIT_OVERSHOOT:  # between two bursts any limit seems to hold
        since_s = now_s if board.over_since_s is None else board.over_since_s
    board = replace(board, over_since_s=since_s)
    if since_s is None or now_s - since_s < JUDGE_S:
        return board, None
    why = f"accepted, but the GPU still drew {power_w:.0f} W under {limit_mw / 1000:.0f} W"
    because = "its power limit has no effect"
    return _give_up(board, "no_effect", Capability("no_effect", why), now, limit_mw / 1000, because)


def wrote(board: BoardLimit, act: Write, now: Now) -> Step:
    """What follows from a write that was carried out; `now` has its error, or the limit read back."""
    if not act.ours_mw:
        stays = act.limit_mw is not None and not near(now.limit_mw, act.limit_mw)
        return _not_restored(board, now) if now.error or stays else _restored(board, now)
    if isinstance(now.error, OSError):
        if board.steering is not None and act.lock is not None and board.steering.wanted_w == act.lock.wanted_w:
            return board, None  # a lock in force is left as it is
        what = "the limit is" if act.lock is None else "clocks are"
        return _ended(board, board.outcome(False, "error", f"{no_lease(now.error)}: {what} left alone"))
    if act.lock is not None:
        return _locked(board, act, act.lock, now)
    if now.error is not None or now.limit_mw is None:
        return _refused(board, now, act.asked_w)
    current = now.limit_mw
    if act.limit_mw is None:
        return _judged_from(board, now), board.outcome(True, "kept")
    board = replace(board, notice="", rounded_mw=(act.limit_mw, current), cap=Capability("yes", span(board.info)))
    text = _lower(act.asked_w, act.limit_mw, current)
    return _judged_from(board, now), board.outcome(True, "applied", text)


def changed_outside(board: BoardLimit, limit_mw: int | None, *, restoring: bool = False) -> BoardLimit | None:
    """The board with a limit set by another program adopted as its original one; None: nobody else has changed it. One
    left by an agent that died between lease and limit is unchanged."""
    lease = board.lease
    if limit_mw is None or (lease is None and not board.found_mw) or (lease and lease.clocks_mhz is not None):
        return None
    known = (board.found_mw or 0,) if lease is None else lease.ours_mw
    if lease is not None and (restoring or board.inherited):
        known = (*known, lease.before_mw)
    if any(near(limit_mw, value) for value in known):
        return None
    tool = boards.of(board.info.maker).tool
    notice = f"the limit was changed outside to {limit_mw / 1000:.0f} W ({tool}?): adopted"
    return replace(forgotten(board), found_mw=limit_mw, notice=notice)


def forgotten(board: BoardLimit) -> BoardLimit:
    """Without what was known of our limit, which is gone."""
    return replace(board, notice="", lease=None, set_at_s=None, binding=False, over_since_s=None, steering=None)


def by_clocks(board: BoardLimit, because: str, limit: Capability) -> BoardLimit:
    """Capped by its clock from now on; `limit` says whether its power limit works."""
    return replace(board, because=because, limit=limit, cap=Capability("unknown", f"{because}; {WARNING}"))


def refusal(board: BoardLimit, error: DeviceError, watts: float | None = None, mhz: int | None = None) -> Refusal:
    """What a driver error means for limits on this board, or for clock locks; requested were `watts`, or `mhz`."""
    if error.code == base.NO_PERMISSION:
        known_mw = board.info.limit_default_mw or board.info.limit_max_mw or 0
        if watts is None and mhz is None:
            watts = EXAMPLE_SHARE * known_mw / 1000
        name, root = board.info.address or board.info.uuid, board.root
        fix = boards.permission(board.info.maker, name, watts=watts, mhz=mhz, root=root)
        why = f"the driver lets only root {'set limits' if mhz is None else 'lock clocks'}"
        return board, Capability("no_permission", why, fix)
    if error.code == base.NOT_SUPPORTED:
        why = "this GPU has no power limit that can be set" if mhz is None else "its clocks cannot be locked"
        return board, Capability("not_supported", why)
    if error.code == base.GPU_IS_LOST:
        return board, Capability("lost", str(error))
    if error.code in (base.REFUSED, base.HELD):
        passing = Capability("no_permission", f"capd: {error}; it is asked again")
    elif error.code == base.NOT_YET:
        passing = Capability("yes", f"through capd, as soon as a process of yours uses this GPU ({error})")
    else:
        passing = Capability("not_supported", f"the driver refuses it now ({error}); it is asked again")
    return replace(board, passing=passing), Capability("unknown", str(error))


def no_range(info: DeviceInfo) -> str:
    """Why this board has no power limit to set; "" if it has one."""
    low, high = info.limit_min_mw, info.limit_max_mw
    if low is None or high is None:
        return "this GPU names no range for its power limit"
    return f"its power limit is fixed at {high / 1000:.0f} W" if low >= high else ""


def no_lease(error: OSError) -> str:
    return f"no lease can be written ({error})"


def span(info: DeviceInfo) -> str:
    """The range of limits, as text."""
    return f"{(info.limit_min_mw or 0) / 1000:.0f}-{(info.limit_max_mw or 0) / 1000:.0f} W"


def near(value_mw: int | None, known_mw: int) -> bool:
    return value_mw is not None and abs(value_mw - known_mw) <= TOLERANCE_MW


def _judged_from(board: BoardLimit, now: Now) -> BoardLimit:
    """A limit is in force: its effect is judged from now on."""
    binding = now.power_w is not None and now.power_w * 1000 > (now.limit_mw or 0) * LIMIT_OVERSHOOT
    return replace(board, set_at_s=now.at_s, over_since_s=None, proven=False, binding=binding)


def _refused(board: BoardLimit, now: Now, watts: float) -> Step:
    """The driver refuses to set the power limit."""
    error = now.error if isinstance(now.error, DeviceError) else DeviceError(base.UNKNOWN, "no limit is read")
    board, refused = refusal(board, error, watts)
    because = "its power limit cannot be set" if error.code in LASTING else ""
    return _give_up(board, CODES.get(error.code, "error"), refused, now, watts, because)


def _give_up(
    board: BoardLimit, code: Code, why: Capability, now: Now, watts: float = 0.0, because: str = "", gone: bool = False
) -> Step:
    """Restore a board, since this way of capping it does not work; `gone`: nothing of ours is in force any more."""
    limit = board.abandoned
    if limit is not None and limit.cap is not None:  # the lock that was to replace a power limit
        code, fix = limit.outcome.code, limit.cap.fix or why.fix
        why = replaced(limit.cap, why=f"{limit.cap.why}; {why.why}", fix=fix)
    outcome = board.outcome(False, code, why.why, why.fix)
    lasts = code not in ("out_of_range", "outside")  # another cap may hold
    board = replace(board, abandoned=Abandoned(outcome, watts, why if lasts else None, because))
    return (board, Write()) if gone else restore(board, now)


def _restored(board: BoardLimit, now: Now) -> Step:
    """Nothing of ours is in force: done, or the clocks are next."""
    abandoned = board.abandoned
    if abandoned is None and board.lease is None:
        return board, board.outcome(True, "kept", "no limit of ours is in force")
    board = forgotten(board)
    if abandoned is None:
        return board, board.outcome(True, "given_back")
    if abandoned.because and abandoned.cap is not None and board.info.clock_max_mhz:
        board = replace(by_clocks(board, abandoned.because, abandoned.cap), abandoned=replaced(abandoned, because=""))
        return _lock(board, abandoned.watts, now)
    notice = abandoned.outcome.text if abandoned.outcome.code == "outside" else ""
    return _ended(replace(board, notice=notice), abandoned.outcome)


def _not_restored(board: BoardLimit, now: Now) -> Step:
    """Ours stays in force, and its lease with it; the command that restores it is named."""
    error = now.error or DeviceError(base.UNKNOWN, f"the GPU stays at {(now.limit_mw or 0) / 1000:.0f} W")
    code = error.code if isinstance(error, DeviceError) else base.UNKNOWN
    fix = "" if code == base.GPU_IS_LOST or board.lease is None else board.lease.fix
    notice = f"limit not restored ({error}); " + (f"run: {fix}" if fix else "a reset of the GPU or a reboot does that")
    outcome = board.outcome(False, CODES.get(code, "error"), notice, fix)
    return _ended(replace(board, notice=notice), outcome)


def _ended(board: BoardLimit, outcome: Outcome) -> Step:
    """The end of an action: of one given up, its own outcome."""
    abandoned = board.abandoned
    if abandoned is None:
        return board, outcome
    fix = abandoned.outcome.fix or outcome.fix
    cap = board.cap if abandoned.cap is None else replaced(abandoned.cap, fix=fix)
    return replace(board, abandoned=None, cap=cap), replaced(abandoned.outcome, fix=fix)


def _lock(board: BoardLimit, watts: float, now: Now) -> Step:
    """Lock the clock so that the board draws about `watts`; `_steer` adjusts it later."""
    if board.steering is not None and board.steering.wanted_w == watts:
        return board, board.outcome(True, "kept", board.cap.why, watts=watts)
    if board.module:
        text = "clocks are steered by watts, and here only those of the whole module can be read"
        return _give_up(board, "not_supported", Capability("unknown", f"{board.because}; {text}"), now)
    top, lease = board.info.clock_max_mhz or 0, board.lease
    mhz = lease.clocks_mhz if lease is not None and lease.clocks_mhz is not None else top
    if now.power_w is not None and now.power_w > watts:
        mhz = clocks_for(watts, now.power_w, min(mhz, board.sm_mhz or mhz), top)  # it may run below its lock already
    ran_mhz = board.steering.ran_mhz if board.steering else board.sm_mhz
    return board, _lock_write(board, Steering(watts, mhz, top, ran_mhz, now.at_s))


def _lock_write(board: BoardLimit, lock: Steering) -> Write:
    return Write((round(lock.wanted_w * 1000),), mhz=lock.mhz, lock=lock, first=board.lease is None)


def _locked(board: BoardLimit, act: Write, lock: Steering, now: Now) -> Step:
    """The driver has answered to a clock lock."""
    if isinstance(now.error, DeviceError):
        board, clocks = refusal(board, now.error, mhz=lock.mhz)
        why = replaced(clocks, why=f"{board.because}, and {clocks.why}")
        gone = act.first and now.error.code in LASTING
        code = CODES.get(now.error.code, "error")
        return _give_up(replace(board, clocks=clocks), code, why, now, gone=gone)
    text, moved = f"{board.because}; {WARNING}", board.clocks_w == lock.wanted_w
    clocks = Capability("yes", f"up to {lock.top_mhz} MHz; {UNREADABLE_LOCK}")
    notice = f"{text}: now at most {lock.mhz} MHz"
    board = replace(board, steering=lock, cap=Capability("yes", text), clocks=clocks, notice=notice, abandoned=None)
    applied = board.outcome(True, "applied", f"{text}: at most {lock.mhz} MHz", watts=lock.wanted_w)
    return board, None if moved else applied


def _steer(board: BoardLimit, steering: Steering, now: Now) -> Step:
    """Move the lock towards the wanted watts; give it up if it does not work."""
    board, failure = replace(board, steering=steering), steering.failure()
    if failure is None:
        mhz = steering.next_mhz(now.power_w, now.at_s)
        return board, None if mhz is None else _lock_write(board, steering.at(mhz, now.at_s))
    if failure.code == "outside":  # the lock in force belongs to another program: not ours to lift
        return _give_up(board, "outside", Capability("unknown", f"{failure.why}: adopted"), now, gone=True)
    if failure.code == "no_effect":
        board = replace(board, clocks=Capability("no_effect", failure.why))
    return _give_up(board, failure.code, Capability("no_effect", f"{board.because}, and {failure.why}"), now)


def _lower(asked_w: float, wanted_mw: int, set_mw: int) -> str:
    """The note for a cap that is not what was requested; '' otherwise."""
    if abs(wanted_mw - set_mw) > TOLERANCE_MW:
        return f"this GPU takes {set_mw / 1000:g} W, not {wanted_mw / 1000:g} W"
    lower = asked_w * 1000 - set_mw > TOLERANCE_MW
    return f"{asked_w:g} W is above the limit found: {set_mw / 1000:g} W" if lower else ""

/*
 * PaxosLease: one cell, three servers, no synchronized clocks, all reachable states.
 *
 * Each option of the loop at the end is one step. Time is true time in whole ticks, stored as the rest of every span
 * and the age of every attempt. A span that a server counts takes between (1 - rho) and (1 + rho) of its length; the
 * model uses the more harmful end. README.md says more.
 *
 * Servers 0 and 1 propose and accept, server 2 only accepts.
 */

/* Scope ------------------------------------------------------------------------------------------ */

#ifndef T
#define T 3                        /* length of a lease */
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 3                 /* attempts in a run, of all proposers' incarnations */
#endif
#ifndef SILENT
#define SILENT 1                   /* servers in their silence at a time */
#endif

/* Rules; each may be broken by a switch ---------------------------------------------------------- */

#ifdef DRIFT_IGNORED
#define HOLDER_SPAN (T + 1)        /* the longest a holder's T lasts without the factor (1 - rho) */
#else
#define HOLDER_SPAN T
#endif
#ifndef SILENCE
#define SILENCE (T + 1)            /* M */
#endif

#ifdef HALF_IS_MAJORITY
#define ENOUGH(acks) ((acks) != 0)
#else
#define ENOUGH(acks) ((acks) == 3 || (acks) >= 5)
#endif

/* Beyond the paper: an acceptor refuses a proposal while another holder's lease that it accepted runs. */
#ifdef PUBLISHED
#define UNTAKEN(a, who) (true)
#else
#define UNTAKEN(a, who) (accepted[a] == 0 || accepted[a] == (who))
#endif

#ifdef EXTENDS_NEVER
#define MAY_EXTEND(p) (false)
#elif defined(EXTENDS_WHILE_HOLDING)
#define MAY_EXTEND(p) (own[p] != 0)
#else
#define MAY_EXTEND(p) (true)
#endif

#define LIFE(p) (p + 1)            /* a proposer's present incarnation */
#define DEAD(p) (p + 3)            /* all its earlier incarnations */

/* State ------------------------------------------------------------------------------------------ */

/* Attempts 1 .. count by ballot: the index is the ballot's rank, 0 means no ballot. */
#define SLOTS 5
#define PREPARING 1
#define PROPOSING 2
byte count;
byte by[SLOTS];
byte phase[SLOTS];

/* Acceptors */
byte silent[3];                    /* rest of the silence after a start */
byte promised[3];
byte accepted[3];                  /* holder of the accepted lease, 0 if none or over */
byte left[3];                      /* rest of its span */

/* Proposers */
byte attempt[2];
byte age[2];                       /* time since the attempt's first PREPARE */
byte acks[2];
bit extends[2];                    /* an answer contains the proposer's own lease */
byte own[2];                       /* rest of the lease acted on */

byte x;                            /* temporary in a step, else 0 */

#define OWNS(p) (own[p] != 0)
#define ONE_OWNER (!(OWNS(0) && OWNS(1)))

/* Time ------------------------------------------------------------------------------------------- */

inline shrink(span) {
	if
	:: span > 0 -> span--
	:: else
	fi
}

inline elapse(a) {
	shrink(silent[a]);
	shrink(left[a]);
	accepted[a] = (left[a] == 0 -> 0 : accepted[a])
}

/* After a lease's length the proposer drops an attempt; its messages stay. */
inline grow(p) {
	shrink(own[p]);
	if
	:: attempt[p] != 0 && age[p] + 1 < HOLDER_SPAN -> age[p]++
	:: else ->
		attempt[p] = 0;
		age[p] = 0;
		acks[p] = 0;
		extends[p] = 0
	fi
}

/* An attempt aborted while it prepares has no effect; runs without it cover that. */
#define IN_TIME(p) (attempt[p] == 0 || phase[attempt[p]] == PROPOSING || age[p] + 1 < HOLDER_SPAN)
#define SOMETHING_COUNTS (own[0] != 0 || own[1] != 0 || left[0] != 0 || left[1] != 0 || left[2] != 0 \
	|| silent[0] != 0 || silent[1] != 0 || silent[2] != 0 || attempt[0] != 0 || attempt[1] != 0)

inline tick() {
	printf("STORY time\n");
	elapse(0); elapse(1); elapse(2);
	grow(0); grow(1)
}

/* Proposer --------------------------------------------------------------------------------------- */

/* A restart resets the run counter: a new ballot exceeds only those of the same incarnation. */
#define NOT_OWN(p, k, place) (k < place || k > ATTEMPTS || by[k] != LIFE(p))
#define CAN_START(p, place) (count < ATTEMPTS && place <= count + 1 && silent[p] == 0 \
	&& (attempt[p] == 0 || phase[attempt[p]] != PREPARING) \
	&& NOT_OWN(p, 1, place) && NOT_OWN(p, 2, place) && NOT_OWN(p, 3, place) && NOT_OWN(p, 4, place))

inline shift(reference, place) {
	if
	:: reference >= place -> reference++
	:: else
	fi
}

inline start(p, place) {
	x = count;
	do
	:: x >= place -> by[x + 1] = by[x]; phase[x + 1] = phase[x]; x--
	:: else -> break
	od;
	x = 0;
	count++;
	shift(promised[0], place); shift(promised[1], place); shift(promised[2], place);
	shift(attempt[1 - p], place);
	by[place] = LIFE(p);
	phase[place] = PREPARING;
	attempt[p] = place;
	age[p] = 0;
	acks[p] = 0;
	extends[p] = 0;
	printf("STORY start %d %d\n", p, place)
}

/* Shows that runs are not vacuous: each claim is false, and must be refuted. */
#ifdef NEVER_TAKEN_OVER
bit held[2];
#endif
inline witness(p) {
#ifdef NEVER_EXTENDED
	assert(!OWNS(p))
#elif defined(NEVER_TAKEN_OVER)
	held[p] = 1;
	assert(!(held[0] && held[1]))
#elif defined(NEVER_WITH_LOWER_BALLOT)
	assert(!(attempt[p] < count && phase[attempt[p] + 1] == PROPOSING))
#else
	skip
#endif
}

inline hold(p) {
	witness(p);
	x = HOLDER_SPAN - age[p];
	own[p] = (x > own[p] -> x : own[p]);
	x = 0;
	printf("STORY owns %d %d\n", p, own[p]);
	assert(ONE_OWNER)
}

#define CAN_PROPOSE(p) (attempt[p] != 0 && phase[attempt[p]] == PREPARING && ENOUGH(acks[p]) \
	&& (!extends[p] || MAY_EXTEND(p)))

inline propose(p) {
	phase[attempt[p]] = PROPOSING;
	printf("STORY propose %d %d %d\n", p, attempt[p], extends[p]);
#ifdef COUNTED_FROM_PROPOSE
	age[p] = 0;
#endif
#ifdef EXTENSION_NOT_ACCEPTED
	if
	:: extends[p] && own[p] != 0 -> hold(p)
	:: else
	fi;
#endif
	acks[p] = 0;
	extends[p] = 0
}

/* Acceptor --------------------------------------------------------------------------------------- */

#define NEW_VOICE(p, a) ((acks[p] & (1 << a)) == 0)

inline vote(p, a) {
#ifdef DUPLICATES_COUNT
	acks[p] = (NEW_VOICE(p, a) -> acks[p] | (1 << a) : 3)
#else
	acks[p] = acks[p] | (1 << a)
#endif
}

#ifdef INCARNATION_IGNORED
#define IS_MINE(p, who) ((who) == LIFE(p) || (who) == DEAD(p))
#else
#define IS_MINE(p, who) ((who) == LIFE(p))
#endif

/* Answers with another holder's lease end the attempt, so they are omitted. */
#define CAN_PREPARE(p, a) (attempt[p] != 0 && phase[attempt[p]] == PREPARING && !ENOUGH(acks[p]) \
	&& silent[a] == 0 && attempt[p] >= promised[a] \
	&& (accepted[a] == 0 || (MAY_EXTEND(p) && IS_MINE(p, accepted[a]))))

inline prepare(p, a) {
#ifndef PROMISE_FORGOTTEN
	promised[a] = attempt[p];
#endif
	vote(p, a);
	extends[p] = (accepted[a] != 0 -> 1 : extends[p]);
	printf("STORY prepare %d %d %d %d\n", p, a, attempt[p], accepted[a]);
#ifndef COUNTED_FROM_PROPOSE
	if
	:: CAN_PROPOSE(p) -> propose(p)
	:: else
	fi
#endif
}

#define CAN_ACCEPT(k, a) (phase[k] == PROPOSING && silent[a] == 0 && k >= promised[a] && UNTAKEN(a, by[k]))

inline accept(k, a) {
	promised[a] = k;
	accepted[a] = by[k];
	left[a] = T;
	printf("STORY accept %d %d %d\n", k, a, by[k]);
	if
	:: attempt[0] == k -> vote(0, a); conclude(0)
	:: attempt[1] == k -> vote(1, a); conclude(1)
	:: else
	fi
}

inline conclude(p) {
	if
	:: ENOUGH(acks[p]) ->
#ifdef COUNTED_FROM_ACCEPT
		age[p] = 0;
#endif
		hold(p);
		attempt[p] = 0;
		acks[p] = 0;
		age[p] = 0
	:: else
	fi
}

/* Restart with amnesia ---------------------------------------------------------------------------- */

#define SILENT_COUNT ((silent[0] != 0) + (silent[1] != 0) + (silent[2] != 0))
#define MAY_CRASH(s) (silent[s] != 0 || SILENT_COUNT < SILENT)

inline restart(s) {
	promised[s] = 0;
	accepted[s] = 0;
	left[s] = 0;
	silent[s] = SILENCE;
	printf("STORY restart %d %d\n", s, SILENCE)
}

inline restartProposer(p) {
	attempt[p] = 0;
	acks[p] = 0;
	age[p] = 0;
	extends[p] = 0;
	own[p] = 0;
	x = 1;
	do
	:: x <= count -> by[x] = (by[x] == LIFE(p) -> DEAD(p) : by[x]); x++
	:: else -> break
	od;
	x = 0;
	accepted[0] = (accepted[0] == LIFE(p) -> DEAD(p) : accepted[0]);
	accepted[1] = (accepted[1] == LIFE(p) -> DEAD(p) : accepted[1]);
	accepted[2] = (accepted[2] == LIFE(p) -> DEAD(p) : accepted[2])
}

/* Steps ------------------------------------------------------------------------------------------- */

#define NOT_PREPARING(s) (attempt[s] == 0 || phase[attempt[s]] != PREPARING)
#define STARTS(p, place) :: d_step { CAN_START(p, place) -> start(p, place) }
#define PREPARES(p, a) :: d_step { CAN_PREPARE(p, a) -> prepare(p, a) }
#define PROPOSES(p) :: d_step { CAN_PROPOSE(p) -> propose(p) }
#define ACCEPTS(k, a) :: d_step { k <= count && CAN_ACCEPT(k, a) -> accept(k, a) }
#define RESTARTS(p) :: d_step { MAY_CRASH(p) && NOT_PREPARING(p) -> restart(p); restartProposer(p) }

active proctype world() {
	do
	:: d_step { SOMETHING_COUNTS && IN_TIME(0) && IN_TIME(1) -> tick() }
	STARTS(0, 1) STARTS(0, 2) STARTS(0, 3)
	STARTS(1, 1) STARTS(1, 2) STARTS(1, 3)
	PREPARES(0, 0) PREPARES(0, 1) PREPARES(0, 2)
	PREPARES(1, 0) PREPARES(1, 1) PREPARES(1, 2)
	PROPOSES(0)
	PROPOSES(1)
	ACCEPTS(1, 0) ACCEPTS(1, 1) ACCEPTS(1, 2)
	ACCEPTS(2, 0) ACCEPTS(2, 1) ACCEPTS(2, 2)
	ACCEPTS(3, 0) ACCEPTS(3, 1) ACCEPTS(3, 2)
#if ATTEMPTS > 3
	STARTS(0, 4) STARTS(1, 4)
	ACCEPTS(4, 0) ACCEPTS(4, 1) ACCEPTS(4, 2)
#endif
	RESTARTS(0)
	RESTARTS(1)
	:: d_step { MAY_CRASH(2) -> restart(2) }
	od
}

/*
 * Flease: one cell, three servers, all reachable states.
 *
 * Each option of the loop at the end is one step: a clock ticks, an acceptor takes a message, a proposer acts, a
 * server restarts. README.md maps the steps to the papers and to lease/, and says what is omitted and why that is
 * safe.
 *
 * Servers 0 and 1 propose and accept, server 2 only accepts. Times are whole ticks of lease clocks.
 */

/* Scope ------------------------------------------------------------------------------------------ */

#ifndef EPS
#define EPS 1                      /* clocks differ by at most this */
#endif
#ifndef TMAX
#define TMAX 3                     /* length of a lease */
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2                 /* attempts whose messages still count, of all proposers' incarnations */
#endif
#ifndef SILENT
#define SILENT 1                   /* servers in their silence at a time */
#endif

/* Rules; each may be broken by a switch ---------------------------------------------------------- */

#ifndef WIDTH
#define WIDTH (TMAX - EPS)         /* of a ballot interval */
#endif
#ifndef WAIT
#define WAIT (TMAX + 2 * EPS)      /* silence after a start */
#endif
#ifndef LIMIT
#define LIMIT 1                    /* an attempt with a longer READ is dropped */
#endif
#ifdef EPS_IGNORED
#define GRACE 0
#else
#define GRACE EPS
#endif

#ifdef HALF_IS_MAJORITY
#define ENOUGH(acks) ((acks) != 0)
#else
#define ENOUGH(acks) ((acks) == 3 || (acks) >= 5)
#endif

#ifdef NO_FLOOR
#define VOIDED 0
#else
#define VOIDED 1
#endif

/*
 * A proposer whose majority found no lease acts at once, because its WRITE may arrive at any later time anyway. If a
 * broken rule makes the moment matter, acting is a separate step.
 */
#if !defined(END_FROM_AFTER_READ) && !defined(CLOCK_READ_TWICE)
#define SOON
#endif

#ifdef PROPOSER_NOT_SILENT
#define MAY_PROPOSE(p) (true)
#else
#define MAY_PROPOSE(p) (silentUntil[p] == 0)
#endif

#ifdef INCARNATION_IGNORED
#define IS_MINE(p, who) ((who) == LIFE(p) || (who) == DEAD(p))
#else
#define IS_MINE(p, who) ((who) == LIFE(p))
#endif

#define INTERVAL(t) (1 + (t) / WIDTH)
#define LIFE(p) (p + 1)             /* a proposer's present incarnation */
#define DEAD(p) (p + 3)             /* all its earlier incarnations */

/* State ------------------------------------------------------------------------------------------ */

/* Attempts 1 .. count by ballot: the index is the ballot's rank, 0 means no ballot. */
#define SLOTS 5
#define READING 1
#define WRITING 2
byte count;
byte by[SLOTS];                    /* the proposer's incarnation */
byte interval[SLOTS];
byte phase[SLOTS];
byte holder[SLOTS];                /* of the lease that it writes */
byte end[SLOTS];                   /* of that lease */
bit decided[SLOTS];                /* a proposer saw a majority accept it */
byte voidAt[SLOTS];                /* bit per acceptor restarted since: the ballot is at or below its floor */

/* Servers. The clock of server 2 runs only during its silence; otherwise nothing reads it. */
byte clock[3];
byte silentUntil[3];
byte least[3];                     /* ballots up to this interval are void here */
byte standing[3];                  /* largest ballot promised or accepted */
byte written[3];                   /* ballot of the last WRITE accepted */

/* Proposers */
byte attempt[2];                   /* the present one, 0 if none */
byte acks[2];                      /* bit per acceptor */
byte found[2];                     /* largest write ballot among the answers */
byte started[2];                   /* t0 */
byte own[2];                       /* end of the lease acted on, 0 if none */
#ifdef CLOCK_READ_TWICE
bit looked[2];
#endif

byte x;                            /* temporary in a step, else 0 */
byte low;
byte latest;

#ifdef ACTS_AT_END
#define ENDS(t, e) ((t) > (e))
#else
#define ENDS(t, e) ((t) >= (e))
#endif
#define OWNS(p) (own[p] != 0 && !ENDS(clock[p], own[p]))

/* Time ------------------------------------------------------------------------------------------- */

#define NOT_AHEAD(s, o) (clock[s] - clock[o] < EPS)
#define WITHIN(t, o) ((t) <= clock[o] + EPS && clock[o] <= (t) + EPS)

/* A READ that takes too long has no effect; runs without the attempt cover it. */
#ifdef NO_ATTEMPT_LIMIT
#define IN_TIME(p, t) (true)
#else
#define IN_TIME(p, t) (attempt[p] == 0 || phase[attempt[p]] != READING || (t) <= started[p] + LIMIT)
#endif

inline tick(s) {
	clock[s]++;
	printf("STORY tick %d %d\n", s, clock[s]);
	if
	:: silentUntil[s] != 0 && clock[s] >= silentUntil[s] ->
		silentUntil[s] = 0;
		printf("STORY recovered %d\n", s);
		if
		:: s == 2 -> clock[s] = 0
		:: else
		fi
	:: else
	fi
}

inline expire(p) {
	if
	:: own[p] != 0 && ENDS(clock[p], own[p]) ->
		own[p] = 0;
		printf("STORY expired %d\n", p)
	:: else
	fi;
}

/* Every acceptor refuses it as old, and its lease is over on every clock. */
#define OUT_OF_HEARING(k) (interval[k] * WIDTH + TMAX + 2 * EPS < latest)
#define OVER(k) (end[k] != 0 && end[k] + 2 * EPS < latest)

inline lower(reference) {
	if
	:: reference > 0 -> reference--
	:: else
	fi
}

inline copy(from, to) {
	by[to] = by[from];
	interval[to] = interval[from];
	phase[to] = phase[from];
	holder[to] = holder[from];
	end[to] = end[from];
	decided[to] = decided[from];
	voidAt[to] = voidAt[from]
}

inline clear(k) {
	by[k] = 0;
	interval[k] = 0;
	phase[k] = 0;
	holder[k] = 0;
	end[k] = 0;
	decided[k] = 0;
	voidAt[k] = 0
}

/* Removes the attempt with the smallest ballot. */
inline drop() {
	printf("STORY drop\n");
	x = 1;
	do
	:: x < count -> copy(x + 1, x); x++
	:: else -> break
	od;
	clear(count);
	count--;
	lower(standing[0]); lower(standing[1]); lower(standing[2]);
	lower(written[0]); lower(written[1]); lower(written[2]);
	lower(attempt[0]); lower(attempt[1]);
	lower(found[0]); lower(found[1])
}

#define RUNS(s) (s < 2 || silentUntil[2] != 0)
#define LATE_ENOUGH(s) (!RUNS(s) || clock[s] > WIDTH + 2 * EPS)

#define BACK(t) t = ((t) > WIDTH -> (t) - WIDTH : 0)

/*
 * Clears what is over, and moves the time origin once nothing refers to earlier times: so runs of any length visit
 * finitely many states.
 */
inline tidy() {
	latest = (clock[0] > clock[1] -> clock[0] : clock[1]);
	latest = (silentUntil[2] != 0 && clock[2] > latest -> clock[2] : latest);
#ifndef NO_OLD_TEST
	do
	:: count > 0 && OUT_OF_HEARING(1) -> drop()
	:: else -> break
	od;
#endif
	x = 1;
	do
	:: x <= count && OVER(x) ->
		end[x] = 0; holder[x] = 0; decided[x] = 0;
		if
		:: attempt[0] == x -> attempt[0] = 0; acks[0] = 0
		:: attempt[1] == x -> attempt[1] = 0; acks[1] = 0
		:: else
		fi;
		x++
	:: x <= count && !OVER(x) -> x++
	:: else -> break
	od;
	if
	:: LATE_ENOUGH(0) && LATE_ENOUGH(1) && LATE_ENOUGH(2) ->
		BACK(clock[0]); BACK(clock[1]); BACK(clock[2]);
		BACK(silentUntil[0]); BACK(silentUntil[1]); BACK(silentUntil[2]);
		BACK(own[0]); BACK(own[1]);
		BACK(started[0]); BACK(started[1]);
		lower(least[0]); lower(least[1]); lower(least[2]);
		x = 1;
		do
		:: x <= count ->
			BACK(end[x]);
			lower(interval[x]);
			by[x] = (interval[x] == 0 -> 0 : by[x]);
			x++
		:: else -> break
		od;
		printf("STORY back %d\n", WIDTH)
	:: else
	fi;
	x = 0;
	latest = 0
}

/* Proposer --------------------------------------------------------------------------------------- */

/*
 * A new ballot has its clock's interval and exceeds the proposer's earlier ones; the round allows any rank among
 * others.
 */
#define NOT_OWN(p, k, place) (k < place || k > ATTEMPTS || by[k] != LIFE(p))
#define CAN_START(p, place) (count < ATTEMPTS && place <= count + 1 && MAY_PROPOSE(p) \
	&& (attempt[p] == 0 || phase[attempt[p]] != READING) \
	&& (place == 1 || interval[place - 1] <= INTERVAL(clock[p])) \
	&& (place > count || interval[place] >= INTERVAL(clock[p])) \
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
	:: x >= place -> copy(x, x + 1); x--
	:: else -> break
	od;
	count++;
	shift(standing[0], place); shift(standing[1], place); shift(standing[2], place);
	shift(written[0], place); shift(written[1], place); shift(written[2], place);
	shift(attempt[1 - p], place); shift(found[1 - p], place);
	by[place] = LIFE(p);
	interval[place] = INTERVAL(clock[p]);
	phase[place] = READING;
	holder[place] = 0;
	end[place] = 0;
	decided[place] = 0;
	attempt[p] = place;
	acks[p] = 0;
	found[p] = 0;
	started[p] = clock[p];
	x = 0;
	voidAt[place] = ((interval[place] <= least[0]) | ((interval[place] <= least[1]) << 1) | ((interval[place] <= least[2]) << 2)) * VOIDED;
	printf("STORY start %d %d %d %d\n", p, place, interval[place], clock[p])
}

/* Ages, by the step's single clock reading. */
#define FREE(p) (found[p] == 0 || end[found[p]] == 0 || clock[p] > end[found[p]] + GRACE)
#define VALID(p) (found[p] != 0 && clock[p] <= end[found[p]])

#ifdef CLOCK_READ_TWICE
#define FREE_AFTER_LOOK(p) (found[p] == 0 || end[found[p]] == 0 || clock[p] > end[found[p]])
#define CHOOSES(p) (looked[p] && (FREE_AFTER_LOOK(p) || VALID(p)))
#define IS_FREE(p) FREE_AFTER_LOOK(p)
#else
#define CHOOSES(p) (FREE(p) || VALID(p))
#define IS_FREE(p) FREE(p)
#endif

#define ANSWERED(p) (attempt[p] != 0 && phase[attempt[p]] == READING && ENOUGH(acks[p]))
#define CAN_CHOOSE(p) (ANSWERED(p) && IN_TIME(p, clock[p]) && CHOOSES(p))

#ifdef END_FROM_AFTER_READ
#define NEW_END(p) (clock[p] + TMAX)
#else
#define NEW_END(p) (started[p] + TMAX)
#endif

inline choose(p) {
	phase[attempt[p]] = WRITING;
	if
	:: IS_FREE(p) ->
		holder[attempt[p]] = LIFE(p);
		end[attempt[p]] = NEW_END(p);
		printf("STORY acquire %d %d %d %d\n", p, attempt[p], NEW_END(p), clock[p])
	:: else ->
		if
		:: IS_MINE(p, holder[found[p]]) ->
			holder[attempt[p]] = LIFE(p);
			if
			:: end[found[p]] > NEW_END(p) -> end[attempt[p]] = end[found[p]]
			:: else -> end[attempt[p]] = NEW_END(p)
			fi;
			printf("STORY renew %d %d %d %d\n", p, attempt[p], end[attempt[p]], clock[p]);
#ifdef RENEWAL_NOT_WRITTEN
			acks[p] = 7;
			finish(p)
#endif
		:: else ->
			holder[attempt[p]] = holder[found[p]];
			end[attempt[p]] = end[found[p]];
			printf("STORY help %d %d %d %d %d\n", p, attempt[p], holder[found[p]], end[found[p]], clock[p]);
#ifdef NO_WRITE_BACK
			acks[p] = 7;
			finish(p)
#endif
		fi
	fi;
	acks[p] = 0;
	found[p] = 0;
	started[p] = 0
#ifdef CLOCK_READ_TWICE
	; looked[p] = 0
#endif
}

/* The slowest clock that any server can read. */
inline slowest() {
	low = (clock[0] < clock[1] -> clock[0] : clock[1]);
	low = (silentUntil[2] != 0 && clock[2] < low -> clock[2] : low)
}

#define ONE_OWNER (!(OWNS(0) && OWNS(1)))

/*
 * A decided lease binds while its holder may act on it, by the holder's clock. If the holder's incarnation is over,
 * no server acts, but the lease still binds, up to the 2 EPS that a clock may lose in a restart.
 */
#define ALIVE(who) ((who) == LIFE(0) || (who) == LIFE(1))
#define BINDS(k) (ALIVE(holder[k]) -> end[k] > clock[holder[k] - 1] : end[k] > low + 2 * EPS)
#define CONFLICT(k, m) (m <= count && decided[m] && holder[m] != holder[k] && BINDS(m) && BINDS(k))
#define AGREEMENT(k) (!CONFLICT(k, 1) && !CONFLICT(k, 2) && !CONFLICT(k, 3) && !CONFLICT(k, 4))
#define NEVER_SHORTER(p, until) (own[p] <= until)

/* Shows that runs are not vacuous: each claim is false, and must be refuted. */
#ifdef NEVER_TAKEN_OVER
bit held[2];
#endif
inline witness(p) {
#ifdef NEVER_RENEWED
	assert(!OWNS(p))
#elif defined(NEVER_HELPED)
	assert(holder[x] == LIFE(p))
#elif defined(NEVER_TAKEN_OVER)
	held[p] = (holder[x] == LIFE(p) && !ENDS(clock[p], end[x]) -> 1 : held[p]);
	assert(!(held[0] && held[1]))
#elif defined(NEVER_AFTER_RESTART)
	assert(!(holder[x] == LIFE(p) && clock[p] < end[x] && least[p] != 0))
#else
	skip
#endif
}

inline finish(p) {
	x = attempt[p];
	witness(p);
	printf("STORY decide %d %d %d %d %d\n", p, x, holder[x], end[x], clock[p]);
	if
	:: holder[x] == LIFE(p) && !ENDS(clock[p], end[x]) ->
		assert(NEVER_SHORTER(p, end[x]));
		own[p] = end[x];
		printf("STORY owns %d %d %d\n", p, own[p], clock[p]);
		assert(ONE_OWNER)
	:: else
	fi;
	decided[x] = 1;
	slowest();
	assert(AGREEMENT(x));
	attempt[p] = 0;
	acks[p] = 0;
	x = 0;
	low = 0
}

/* Acceptor --------------------------------------------------------------------------------------- */

#define HEARS(a, k) (silentUntil[a] == 0 && (voidAt[k] & (1 << a)) == 0)
#define NOT_FUTURE(a, k) (a == 2 || interval[k] <= INTERVAL(clock[a] + EPS))

#define NEW_VOICE(p, a) ((acks[p] & (1 << a)) == 0)

/* A repeated message changes nothing, so only the variant that counts answers twice repeats one. */
#ifdef DUPLICATES_COUNT
#define REPEATED (true)
#else
#define REPEATED (false)
#endif

inline vote(p, a) {
	acks[p] = (NEW_VOICE(p, a) -> acks[p] | (1 << a) : 3)
}

#define CAN_READ(p, a) (attempt[p] != 0 && phase[attempt[p]] == READING && !ENOUGH(acks[p]) \
	&& HEARS(a, attempt[p]) && written[a] < attempt[p] && (REPEATED || NEW_VOICE(p, a)) \
	&& (standing[a] < attempt[p] || (REPEATED && standing[a] == attempt[p])))

inline read(p, a) {
#ifndef PLANTED
	assert(NOT_FUTURE(a, attempt[p]));
#endif
#ifndef PROMISE_FORGOTTEN
	standing[a] = attempt[p];
#endif
	vote(p, a);
	if
	:: written[a] > found[p] -> found[p] = written[a]
	:: else
	fi;
	printf("STORY read %d %d %d %d %d %d\n", p, a, attempt[p], written[a], holder[written[a]], end[written[a]]);
#ifdef SOON
	if
	:: CAN_CHOOSE(p) && IS_FREE(p) -> choose(p)
	:: else
	fi
#endif
}

#define CAN_WRITE(k, a) (phase[k] == WRITING && HEARS(a, k) && k >= standing[a] \
	&& (k > written[a] || (REPEATED && (attempt[0] == k || attempt[1] == k))))

inline conclude(p) {
	if
	:: ENOUGH(acks[p]) -> finish(p)
	:: else
	fi
}

inline write(k, a) {
#ifndef PLANTED
	assert(NOT_FUTURE(a, k));
#endif
	standing[a] = k;
	written[a] = k;
	printf("STORY write %d %d %d %d\n", k, a, holder[k], end[k]);
	if
	:: attempt[0] == k -> vote(0, a); conclude(0)
	:: attempt[1] == k -> vote(1, a); conclude(1)
	:: else
	fi
}

/* Restart with amnesia ---------------------------------------------------------------------------- */

#define NOT_READING(s) (attempt[s] == 0 || phase[attempt[s]] != READING)
#define SILENT_COUNT ((silentUntil[0] != 0) + (silentUntil[1] != 0) + (silentUntil[2] != 0))
#define MAY_CRASH(s) (silentUntil[s] != 0 || SILENT_COUNT < SILENT)

inline restart(s, now) {
	clock[s] = now;
	standing[s] = 0;
	written[s] = 0;
	least[s] = INTERVAL(now + EPS);
	silentUntil[s] = now + WAIT;
	printf("STORY restart %d %d %d\n", s, now, silentUntil[s]);
	x = 1;
	do
	:: x <= count ->
		voidAt[x] = voidAt[x] | ((interval[x] <= least[s]) << s) * VOIDED;
		x++
	:: else -> break
	od;
	x = 0;
	if
	:: WAIT == 0 && s == 2 -> silentUntil[s] = 0; clock[s] = 0
	:: WAIT == 0 && s != 2 -> silentUntil[s] = 0
	:: else
	fi
}

inline restartProposer(p) {
	attempt[p] = 0;
	acks[p] = 0;
	found[p] = 0;
	started[p] = 0;
	own[p] = 0;
	x = 1;
	do
	:: x <= count ->
		by[x] = (by[x] == LIFE(p) -> DEAD(p) : by[x]);
		holder[x] = (holder[x] == LIFE(p) -> DEAD(p) : holder[x]);
		x++
	:: else -> break
	od;
	x = 0
}

/* Steps ------------------------------------------------------------------------------------------- */

#define TICKS(p, q) \
	:: d_step { NOT_AHEAD(p, q) && (silentUntil[2] == 0 || NOT_AHEAD(p, 2)) \
		&& IN_TIME(p, clock[p] + 1) -> tick(p); expire(p); tidy() }

#define STARTS(p, place) :: d_step { CAN_START(p, place) -> start(p, place) }
#define READS(p, a) :: d_step { CAN_READ(p, a) -> read(p, a) }
#define WRITES(k, a) :: d_step { k <= count && CAN_WRITE(k, a) -> write(k, a) }
#define CHOICES(p) :: d_step { CAN_CHOOSE(p) -> choose(p) }

/* The new clock is that of server q + `plus` - EPS: anywhere within bounds of the others, also behind the old one. */
#define RESTARTS(p, q, plus) \
	:: d_step { MAY_CRASH(p) && NOT_READING(p) && (silentUntil[2] == 0 || WITHIN(clock[q] + plus - EPS, 2)) -> \
		restart(p, clock[q] + plus - EPS); restartProposer(p) }
#define RESTARTS_ACCEPTOR(plus) \
	:: d_step { MAY_CRASH(2) && WITHIN(clock[0] + plus - EPS, 1) -> \
		restart(2, clock[0] + plus - EPS) }

active proctype world() {
	d_step {
		clock[0] = 2 * EPS + 1;
		clock[1] = 2 * EPS + 1
	};
	do
	TICKS(0, 1)
	TICKS(1, 0)
	:: d_step { silentUntil[2] != 0 && NOT_AHEAD(2, 0) && NOT_AHEAD(2, 1) -> tick(2); tidy() }
	STARTS(0, 1) STARTS(0, 2)
	STARTS(1, 1) STARTS(1, 2)
	READS(0, 0) READS(0, 1) READS(0, 2)
	READS(1, 0) READS(1, 1) READS(1, 2)
	WRITES(1, 0) WRITES(1, 1) WRITES(1, 2)
	WRITES(2, 0) WRITES(2, 1) WRITES(2, 2)
#if ATTEMPTS > 2
	STARTS(0, 3) STARTS(1, 3)
	WRITES(3, 0) WRITES(3, 1) WRITES(3, 2)
#endif
#if ATTEMPTS > 3
	STARTS(0, 4) STARTS(1, 4)
	WRITES(4, 0) WRITES(4, 1) WRITES(4, 2)
#endif
	CHOICES(0)
	CHOICES(1)
#ifdef CLOCK_READ_TWICE
	:: d_step { ANSWERED(0) && !looked[0] && (FREE(0) || VALID(0)) -> looked[0] = 1; printf("STORY look 0 %d\n", clock[0]) }
	:: d_step { ANSWERED(1) && !looked[1] && (FREE(1) || VALID(1)) -> looked[1] = 1; printf("STORY look 1 %d\n", clock[1]) }
#endif
	RESTARTS(0, 1, 0) RESTARTS(0, 1, 1) RESTARTS(0, 1, 2)
	RESTARTS(1, 0, 0) RESTARTS(1, 0, 1) RESTARTS(1, 0, 2)
	RESTARTS_ACCEPTOR(0) RESTARTS_ACCEPTOR(1) RESTARTS_ACCEPTOR(2)
#if EPS > 1
	RESTARTS(0, 1, 3) RESTARTS(0, 1, 4)
	RESTARTS(1, 0, 3) RESTARTS(1, 0, 4)
	RESTARTS_ACCEPTOR(3) RESTARTS_ACCEPTOR(4)
#endif
	od
}

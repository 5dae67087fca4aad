/** Known bugs of the leases that clients hold; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const claim = plantedIn('claim');

export const PLANTED_CLAIM: readonly Planted[] = [
  claim(
    '24g',
    'PaxosLease: an acceptor shortens what the same holder had',
    {
      file: 'lease/paxos-lease.ts',
      find: 'return { ...lease, untilMs: same ? Math.max(before.untilMs, untilMs) : untilMs };',
      replace: 'return { ...lease, untilMs: same ? untilMs : untilMs };',
    },
    { directed: 'a shorter refresh that nobody heard of', seeds: 400 },
  ),
  claim(
    'token',
    'a token does not rise where ballots differ by their servers only',
    {
      file: 'lease/client-bidder.ts',
      find: 'if (token <= ballotToken(attempt.highest',
      replace: 'if (token < 0 && token <= ballotToken(attempt.highest',
    },
    { directed: 'tokens rise' },
  ),
  claim(
    'clock-back',
    'after a start the silence is counted by a clock that was set back, and tokens fall',
    {
      file: 'lease/recovery.ts',
      find: 'const lastMs = Math.max(nowMs, parameters.formerClockMs);',
      replace: 'const lastMs = nowMs;',
    },
    { test: { file: 'test/lease/host.test.ts', name: 'former-clock' } },
  ),
  claim(
    'clock-uncovered',
    'a server votes on names without having remembered the reading of its clock',
    {
      file: 'server/lease-link.ts',
      find: 'this.#coveredUntilMs = clockMemory?.cover(nowMs) ?? Infinity;',
      replace: 'this.#coveredUntilMs = clockMemory === undefined ? 0 : Infinity;',
    },
    { test: { file: 'test/named/driver.test.ts', name: 'while none of them runs' } },
  ),
  claim(
    'clock-back-running',
    'a server whose clock was set back while it runs begins anew by the new one alone',
    {
      file: 'server/lease-link.ts',
      find: 'this.#formerClockMs = Math.max(this.#formerClockMs, this.nowMs());',
      replace: 'this.#formerClockMs = Math.max(this.#formerClockMs, -Infinity);',
    },
    {
      test: { file: 'test/named/driver.test.ts', name: 'while they run: their leases end, and tokens rise' },
    },
  ),
  claim(
    'clock-next-boot',
    'the monotonic clock of another boot tells how far the clock of names had come',
    {
      file: 'server/storage/named-clock.ts',
      find: 'return isSameBoot ? Math.min',
      replace: 'return isSameBoot || known.untilMs > 0 ? Math.min',
    },
    {
      test: { file: 'test/storage/data-folder.test.ts', name: 'remembers up to which reading of the clock' },
    },
  ),
  claim(
    'late-refresh',
    'a lease that is over is refreshed',
    {
      file: 'lease/client-bidder.ts',
      find: "      case 'refresh':\n        if (finding.kind === 'held' && mine)",
      replace: "      case 'refresh':\n        if (finding.kind !== 'free' && mine)",
    },
    { directed: 'what is over is not refreshed' },
  ),
  claim(
    'grace',
    'a lease in its grace period is given to the next client',
    {
      file: 'lease/client-bidder.ts',
      find: "if (finding.kind === 'free') return this.#acquire(order, attempt, nowMs);",
      replace: "if (finding.kind !== 'held') return this.#acquire(order, attempt, nowMs);",
    },
    { directed: 'grace is waited out', seeds: 400 },
  ),
  claim(
    'release',
    'a client is told that its lease is given back, and nobody wrote that',
    {
      file: 'lease/client-bidder.ts',
      find: "return this.#write({ ...finding.lease, released: true }, attempt, 'renew', 0);",
      replace: "return { kind: 'done' };",
    },
    { directed: 'what is given back is free', seeds: 20 },
  ),
  claim(
    'look',
    'a claim that only some answers tell of is told without being written back',
    {
      file: 'lease/client-bidder.ts',
      find: "const open = finding.kind === 'held' && !attempt.unanimous && this.#rules.helps;",
      replace: 'const open = attempt.phase.length === 0;',
    },
    { directed: 'what was seen stays' },
  ),
  claim(
    'session',
    'sessions are not compared: anybody may extend and give back',
    {
      file: 'lease/client-bidder.ts',
      find: "return this.order.kind !== 'look' && lease.claim?.session === this.order.session;",
      replace: "return this.order.kind !== 'look' && lease.claim !== null;",
    },
    { directed: 'a stranger extends nothing', seeds: 20 },
  ),
  claim(
    'late-grant',
    'a grant is answered although it is over by then',
    {
      file: 'lease/cell.ts',
      find: "const over = attempt.reason !== 'help' && !lease.released && nowMs >= lease.untilMs;",
      replace: "const over = attempt.reason !== 'help' && nowMs > Infinity;",
    },
    { directed: 'a grant runs', seeds: 400 },
  ),
];

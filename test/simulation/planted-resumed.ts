/** Known bugs of ordering without a lease (decision 0074), and of the beginnings that need no promises; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const RESUMED = 'test/server/resumed-files.test.ts';
const CONVERSATION = 'resumed.txt';
const CORE = 'replica/replica.ts';
const RULE = 'replica/resumption.ts';
const SERVICE = 'server/file/file-service.ts';

export const PLANTED_RESUMED: readonly Planted[] = [
  replica(
    'resumed-promised',
    'who has promised a larger epoch goes on by his own',
    {
      file: RULE,
      find: 'if (!epochEqual(promised, place.epoch) || !epochEqual(installed, place.epoch)) return false;',
      replace: 'if (!epochEqual(installed, place.epoch)) return false;',
    },
    { conversation: CONVERSATION },
  ),
  replica(
    'resumed-uncommitted',
    'who has given up what he ordered takes it for committed when he goes on',
    {
      file: CORE,
      find: 'const place = order.isIdle ? { epoch: order.epoch, seq: order.lastSeq } : null;',
      replace: 'const place = { epoch: order.epoch, seq: order.lastSeq };',
    },
    { directed: 'gone on with alone' },
  ),
  replica(
    'resumed-place',
    'who has ordered more since goes on all the same',
    {
      file: RULE,
      find: 'const isHere = seq === place.seq && issuedSeq === place.seq && seq > 0 && install === null;',
      replace: 'const isHere = issuedSeq === seq && install === null;',
    },
    { conversation: CONVERSATION },
  ),
  replica(
    'resumed-suspect',
    'who may have forgotten something goes on',
    { file: RULE, find: "return isHere && trust === 'intact' && needs", replace: 'return isHere && needs' },
    { conversation: CONVERSATION },
  ),
  replica(
    'resumed-all',
    'where every replica has to have a write, nobody says who is missing',
    {
      file: RULE,
      find: "return joint === undefined && policy === 'quorum';",
      replace: 'return joint === undefined && policy.length > 0;',
    },
    { conversation: CONVERSATION },
  ),
  replica(
    'resumed-last',
    'the primary of the catalog goes on without its lease',
    { file: CORE, find: "if (this.#config.appliesAtPrimary === 'last') return null;", replace: '' },
    { conversation: CONVERSATION },
  ),
  replica(
    'resumed-leased',
    'who gets the lease goes on as if he had none',
    {
      file: CORE,
      find: "return this.#state.kind === 'resumed' && this.#lease.untilMs === 0;",
      replace: "return this.#state.kind === 'resumed';",
    },
    { conversation: CONVERSATION },
  ),
  replica(
    'resumed-lapsed',
    'a primary whose lease was over before it ended goes on, while others may still read by what it has granted',
    {
      file: CORE,
      find: 'this.#stepDown();\n    }\n    this.#stopAsked = false;',
      replace:
        'if (this.#order !== null) this.#endInOrder(this.#order);\n    }\n    this.#stopAsked = false;',
    },
    { conversation: CONVERSATION },
  ),
  replica(
    'resumed-drained',
    'who is being drained goes on without a lease',
    {
      file: SERVICE,
      find: 'return holder === null && lease.isUsable() && (yieldTo?.(view) ?? null) === null;',
      replace: 'return holder === null && lease.isUsable();',
    },
    {
      test: {
        file: RESUMED,
        name: 'who is being drained, or about to end, orders nothing without a lease either',
      },
    },
  ),
  replica(
    'resumed-ending',
    'who is about to end goes on without a lease',
    {
      file: SERVICE,
      find: 'return holder === null && lease.isUsable() && (yieldTo',
      replace: 'return holder === null && (yieldTo',
    },
    {
      test: {
        file: RESUMED,
        name: 'who is being drained, or about to end, orders nothing without a lease either',
      },
    },
  ),
  replica(
    'resumed-untold',
    'what was changed without a lease is not told to the catalog when the file is let go',
    {
      file: SERVICE,
      find: 'if (driver.leads || this.#orderedBy(driver.file) !== null) await',
      replace: 'if (driver.leads) await',
    },
    {
      test: {
        file: RESUMED,
        name: 'whoever lets go of a file tells the catalog what was changed without a lease',
      },
    },
  ),
  replica(
    'resumed-hanging',
    'what nobody acknowledges without a lease is waited for as long as it takes',
    {
      file: CORE,
      find: 'if (!order.isIdle && state.stalled < STALLED_HEARTBEATS) return true;',
      replace: 'if (!order.isIdle) return true;',
    },
    { conversation: CONVERSATION },
  ),
  replica(
    'resumed-again',
    'where an epoch has ended is told each time that a file is taken into use',
    {
      file: 'server/replica-host.ts',
      find: 'if (place !== undefined && this.#ended.delete(file)) driver.step',
      replace: 'if (place !== undefined) driver.step',
    },
    {
      test: {
        file: RESUMED,
        name: 'who could not store what he has ordered orders nothing else in its place',
      },
    },
  ),
  replica(
    'resumed-bound',
    'who is changing a file without leading it agrees to nothing',
    {
      file: CORE,
      find: "if (this.#state.kind !== 'backup' && this.#state.kind !== 'resumed') return false;",
      replace: "if (this.#state.kind !== 'backup') return false;",
    },
    { test: { file: RESUMED, name: 'what others are asked about such a file they tell without leading it' } },
  ),
  replica(
    'resumed-turn',
    'two marks of one epoch have one number, and the end of the first ends the second',
    {
      file: SERVICE,
      find: 'nextTurn: () => ++this.#turns,',
      replace: 'nextTurn: () => 1 + 0 * this.#turns,',
    },
    {
      test: {
        file: RESUMED,
        name: 'what is changed so is marked in the catalog, and settled, by numbers that never come',
      },
    },
  ),
  replica(
    'resumed-settled',
    'a mark ends behind a word that may vanish',
    {
      file: 'server/file/file-primary.ts',
      find: 'await this.#submitSettling();\n      return;',
      replace: 'if (owes) await this.#submitSettling();\n      return;',
    },
    { test: { file: RESUMED, name: 'the catalog is told nothing of what is not known to be committed' } },
  ),
  replica(
    'resumed-wiped',
    'who only orders gives the state to a replica that may have forgotten whom it has promised more',
    { file: 'replica/write-order.ts', find: 'if (!this.#isLed) return false;', replace: '' },
    { conversation: CONVERSATION },
    {
      also: [
        {
          file: 'replica/write-order.ts',
          find: 'if (beat <= this.#beat) answering',
          replace: 'answering',
        },
      ],
    },
  ),
  replica(
    'resumed-overtaken',
    'who only orders refuses a change by a state that others have changed since',
    {
      file: SERVICE,
      find: 'if (!isRefused || driver.leads) throw error;',
      replace: 'if (isRefused || driver.leads) throw error;',
    },
    {
      test: {
        file: RESUMED,
        name: 'who refuses by a state that others have changed since decides once more',
      },
    },
  ),
  replica(
    'resumed-turn-first',
    'the mark of a span that was forgotten stands for ever',
    {
      file: 'server/file/file-primary.ts',
      find: 'if (this.#turn === 0) this.#turn = this.#catalog.nextTurn();',
      replace: '',
    },
    { test: { file: RESUMED, name: 'a mark that came to nothing ends with the next settling' } },
  ),
  replica(
    'resumed-unlocked-later',
    'that nobody led by a birth is said of a later epoch, in which there may be locks',
    {
      file: SERVICE,
      find: 'driver.epoch.counter === FIRST_COUNTER && !driver.leads',
      replace: '!driver.leads',
    },
    {
      test: {
        file: 'test/server/file-locks.test.ts',
        name: 'what was borne, and led, and changed without a primary then, has locks',
      },
    },
  ),
  replica(
    'resumed-lost',
    'who does not lead yet says of contents of a later epoch that they are lost',
    {
      file: 'server/file/file-primary.ts',
      find: 'if (epochCompare(this.#driver.epoch, this.epoch) !== 0) throw this.#deposed();\n    const { epoch, seq }',
      replace: 'const { epoch, seq }',
    },
    { test: { file: RESUMED, name: 'what snapshots are to show is preserved by who leads' } },
  ),
  replica(
    'resumed-unlocked',
    'whoever leads first what was borne, and was changed since, waits for claims of locks that nobody ever had',
    {
      file: SERVICE,
      find: 'this.#locks.endedUnlocked(driver, driver.epoch.counter);',
      replace: 'void driver.epoch.counter;',
    },
    {
      test: {
        file: 'test/server/file-locks.test.ts',
        name: 'a file that was borne, and changed without a primary since, has no locks',
      },
    },
  ),
  replica(
    'resumed-newest',
    'what a replica hears of who orders without a lease makes what it has the newest',
    {
      file: 'replica/backup.ts',
      find: 'if (message.guardMs > 0 && standing.seq >= message.committedSeq) this',
      replace: 'if (standing.seq >= message.committedSeq) this',
    },
    { conversation: 'age.txt' },
  ),
  replica(
    'resumed-sure',
    'who orders without a lease takes what it has for the newest',
    {
      file: CORE,
      find: "currentAtMs: state.kind === 'active' ? nowMs",
      replace: "currentAtMs: state.kind !== 'backup' ? nowMs",
    },
    { conversation: 'age.txt' },
  ),
  replica(
    'resumed-guard',
    'who orders without a lease has others keep a guard, for reads that it does not answer',
    {
      file: 'replica/write-order.ts',
      find: 'const guardMs = this.#isLed ? Math.max(0, Math.floor(this.#lease.untilMs - nowMs)) : 0;',
      replace: 'const guardMs = Math.max(0, Math.floor(this.#isLed ? this.#lease.untilMs - nowMs : 1_000));',
    },
    { conversation: CONVERSATION },
  ),
  replica(
    'age-behind',
    'what a replica lacks of what is committed does not make it older',
    {
      file: 'replica/backup.ts',
      find: 'if (message.guardMs > 0 && standing.seq >= message.committedSeq) this',
      replace: 'if (message.guardMs > 0) this',
    },
    { conversation: 'age.txt' },
  ),
  replica(
    'made-quiet',
    'who has made a file and does not write to it leads it no sooner than his next heartbeat leaves',
    { file: SERVICE, find: "driver.step({ kind: 'read-wanted' });", replace: '' },
    {
      test: {
        file: 'test/server/made-files.test.ts',
        name: 'who has made a file and does not write to it waits for no heartbeat',
      },
    },
  ),
];

import { historyCheck } from '../../../history/checker.ts';
import type { Operation } from '../../../history/operation.ts';
import type { Judge } from '../judge.ts';
import type { Run } from '../run.ts';
import { TTL_MS } from '../simulated-machine.ts';

/** The most states in the search of one key, before it is undecided. */
const CONFIGURATIONS_MAX = 300_000;
/** With `cache=ttl`: the time that an answer takes to the mount is not part of its age. */
const TTL_SLACK_MS = 200;
const TTL_NS = (TTL_MS + TTL_SLACK_MS) * 1e6;

/** The history of each file and of each directory must be linearizable. */
export class HistoryJudge implements Judge {
  judge(run: Run): void {
    const { cache } = run.cluster.shape;
    const history = agedHistory(run.history, cache === 'ttl' ? TTL_NS : 0);
    const { violations, undecided } = historyCheck(history, { configurationsMax: CONFIGURATIONS_MAX });
    run.undecided = undecided.length;
    for (const violation of violations)
      run.violation(`${violation.key} is not linearizable: ${JSON.stringify(violation, null, 1)}`);
  }
}

function agedHistory(history: readonly Operation[], ageNs: number): Operation[] {
  const renames = new Map<string, Rename[]>();
  for (const operation of history) {
    if (operation.op !== 'rename') continue;
    const { key } = operation;
    renames.set(key, [...(renames.get(key) ?? []), operation as Rename]);
  }
  return history.flatMap((operation) => aged(operation, renames.get(operation.key) ?? [], ageNs));
}

/**
 * Weakens the answers of mounts to what they guarantee. Linux looks both names of a rename up before it sends the
 * request, each at its own time: if both are links of one file it succeeds and changes nothing. With `cache=ttl` an
 * answer may have been true up to the caching time before; a refused rename proves no state; and a rename moves what
 * the kernel has cached: if the source was outdated, so is the target for the rest of the time.
 *
 * @param ageNs how old answers may be, in nanoseconds
 */
function aged(operation: Operation, ofDirectory: readonly Rename[], ageNs: number): Operation[] {
  const { client, op, output, call } = operation;
  if (!client.startsWith('m')) return [operation];
  const [sinceNs, mount] = [call - ageNs, mountOf(client)];
  const untilNs = operation.return ?? Number.POSITIVE_INFINITY;
  const renames = ofDirectory.filter(
    (other) => other !== operation && other.call < untilNs && (other.return ?? untilNs) > sinceNs,
  );
  const named = namesOf(operation);
  if (op === 'rename' && output !== null) {
    if (output === false) return ageNs === 0 ? [operation] : [];
    const isOneInode = renames.some(
      ({ client: by, input }) => mountOf(by) !== mount && named.includes(input.from),
    );
    return [isOneInode ? { ...operation, status: 'unknown', return: null } : operation];
  }
  if (ageNs === 0) return [operation];
  const isRead = op === 'pread' || op === 'size' || op === 'lookup' || output === false;
  if (!isRead) return [operation];
  const isMoved = renames.some(
    ({ client: by, input }) =>
      mountOf(by) === mount && (named.includes(input.from) || named.includes(input.to)),
  );
  return isMoved ? [] : [{ ...operation, call: Math.max(0, sinceNs) }];
}

type Rename = Extract<Operation, { readonly op: 'rename' }>;

function mountOf(client: string): string {
  return client.replace(/\/.*/, '');
}

function namesOf(operation: Operation): string[] {
  if (operation.op === 'rename') return [operation.input.from, operation.input.to];
  const { input } = operation;
  return input !== null && typeof input === 'object' && 'name' in input ? [input.name] : [];
}

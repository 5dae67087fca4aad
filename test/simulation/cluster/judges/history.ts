import { historyCheck } from '../../../history/checker.ts';
import type { Operation } from '../../../history/operation.ts';
import type { Judge } from '../judge.ts';
import type { Run } from '../run.ts';
import { TTL_MS } from '../simulated-machine.ts';

/** States that the search for an order looks at before it is undecided, of one key. */
const CONFIGURATIONS_MAX = 300_000;
/** With `cache=ttl`: what an answer took to arrive at the mount is not part of its age. */
const TTL_SLACK_MS = 200;

/** The history of each file and of each directory is linearizable. */
export class HistoryJudge implements Judge {
  readonly name = 'history';

  judge(run: Run): void {
    const { cache } = run.cluster.shape;
    const history = cache === 'ttl' ? run.history.flatMap(aged) : run.history;
    const { violations, undecided } = historyCheck(history, { configurationsMax: CONFIGURATIONS_MAX });
    run.undecided = undecided.length;
    for (const violation of violations)
      run.violation(`${violation.key} is not linearizable: ${JSON.stringify(violation, null, 1)}`);
  }
}

/** @returns the operation with the time in which what a mount with `cache=ttl` answers may have been true; none where that says nothing */
function aged(operation: Operation): readonly Operation[] {
  const { client, op, output, call } = operation;
  if (!client.startsWith('m')) return [operation];
  if (op === 'rename' && output !== null) return renamed(operation);
  const isRead = op === 'pread' || op === 'size' || op === 'lookup' || output === false;
  return [isRead ? { ...operation, call: Math.max(0, call - (TTL_MS + TTL_SLACK_MS) * 1e6) } : operation];
}

/**
 * Linux looks at both names of a rename before it sends it, and has each from a moment of its own: a refusal shows no state that
 * was, and where both stand for one file it succeeds and changes nothing.
 */
function renamed(operation: Operation): readonly Operation[] {
  if (operation.output === false) return [];
  return [{ ...operation, output: null, status: 'unknown', return: null }];
}

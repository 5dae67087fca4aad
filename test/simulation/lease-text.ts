/** How messages of the lease layer read in a trace: `READ 58/3@b cell 2`. */
import { unreachable } from '../../base/assert.ts';
import { ballotText } from '../../lease/ballot.ts';
import type { Lease } from '../../lease/lease.ts';
import type { LeaseMessage } from '../../lease/messages.ts';
import { START_MS } from './world.ts';

export function leaseMessageText(message: LeaseMessage): string {
  const view = message.view === 1 ? '' : ` view ${message.view}`;
  return `${verbText(message)} cell ${message.cell}${view}`;
}

/** The end of a lease as a trace tells time: since the beginning of the run. */
export function untilText(untilMs: number): string {
  return (untilMs - START_MS).toFixed(2);
}

function verbText(message: LeaseMessage): string {
  switch (message.kind) {
    case 'read':
      return `READ ${ballotText(message.ballot)}`;
    case 'write':
      return `WRITE ${ballotText(message.ballot)} ${leaseText(message.lease)}`;
    case 'ack-read':
      return `ack READ ${ballotText(message.ballot)}: ${leaseText(message.lease)} written ${ballotText(message.written)}`;
    case 'ack-write':
      return `ack WRITE ${ballotText(message.ballot)}`;
    case 'nack-read':
      return `nack READ ${ballotText(message.ballot)}: ${ballotText(message.standing)} stands`;
    case 'nack-write':
      return `nack WRITE ${ballotText(message.ballot)}: ${ballotText(message.standing)} stands`;
    case 'refused-read':
      return `refuse READ ${ballotText(message.ballot)}: ${message.reason}`;
    case 'refused-write':
      return `refuse WRITE ${ballotText(message.ballot)}: ${message.reason}`;
    case 'query':
      return `QUERY ${ballotText(message.ballot)}`;
    case 'wrong-view':
      return `wrong view for ${ballotText(message.ballot)}`;
    case 'learn':
      return `LEARN ${ballotText(message.ballot)} ${leaseText(message.lease)}`;
    case 'release':
      return `RELEASE ${ballotText(message.uid)}`;
    default:
      return unreachable(message);
  }
}

function leaseText(lease: Lease | null): string {
  if (lease === null) return 'no lease';
  // In PaxosLease a lease on its way has a span in place of an end.
  const isSpan = lease.untilMs < START_MS / 2;
  const end = isSpan ? `for ${lease.untilMs.toFixed(2)} ms` : `until ${untilText(lease.untilMs)}`;
  return `(${lease.holder} ${end}${lease.released ? ', released' : ''})`;
}

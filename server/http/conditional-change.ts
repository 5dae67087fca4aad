import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Attributes, Expectation } from '../../wire/catalog-api.ts';
import type { Gateway } from '../gateway.ts';
import { type Conditions, checkForChange, standingOf } from './conditions.ts';
import { displayPath, type FilePath, volumePath } from './path.ts';

/** A name that changes more often than this between a look and a command is too restless. */
const ATTEMPTS_MAX = 20;

export function areConditions(conditions: Conditions): boolean {
  const { ifMatch, ifNoneMatch, ifUnmodifiedSince } = conditions;
  return ifMatch !== undefined || ifNoneMatch !== undefined || ifUnmodifiedSince !== undefined;
}

/** What has the name now; null where nothing has. @param follow what a link at the end leads to instead */
export async function currentOf(
  gateway: Gateway,
  path: FilePath,
  { follow, live }: { readonly follow: boolean; readonly live: boolean },
): Promise<Attributes | null> {
  const query = { kind: 'resolve', volume: path.volume, path: volumePath(path.names), follow } as const;
  try {
    // Only an entity tag is worth asking a live file's primary for.
    const { attributes } = await (live ? gateway.query(query) : gateway.queryCatalog(query));
    return attributes;
  } catch (error) {
    if (error instanceof ServiceError && error.code === 'not-found') return null;
    throw error;
  }
}

/**
 * Makes a change of names under the conditions of a request. They are held against what is there, and the
 * catalog then refuses the change unless just that is still there, unchanged. Where it refuses, what is there by
 * now is judged anew: so a condition that holds is never refused, and one that fails never passes.
 *
 * @param change the command; to be given what it has to expect
 * @throws ServiceError `precondition-failed`
 */
export async function changeUnder<Result>(
  gateway: Gateway,
  path: FilePath,
  conditions: Conditions,
  follow: boolean,
  change: (expect: Expectation) => Promise<Result>,
): Promise<Result> {
  if (!areConditions(conditions)) return change({ kind: 'anything' });
  for (let attempt = 1; attempt <= ATTEMPTS_MAX; attempt++) {
    const current = await settledOf(gateway, path, follow);
    checkForChange(conditions, standingOf(current), displayPath(path));
    try {
      return await change(expectationOf(current));
    } catch (error) {
      if (!isOutdated(error, current)) throw error;
    }
  }
  throw new ServiceError('busy', `${displayPath(path)} is being changed all the time`);
}

/** @returns whether the change was refused because something else is there by now */
function isOutdated(error: unknown, current: Attributes | null): boolean {
  if (!(error instanceof ServiceError)) return false;
  return error.code === 'precondition-failed' || (error.code === 'not-found' && current !== null);
}

/** As the catalog has it, which by then is all that anybody knows of it. */
async function settledOf(gateway: Gateway, path: FilePath, follow: boolean): Promise<Attributes | null> {
  const current = await currentOf(gateway, path, { follow, live: false });
  if (current === null || !current.live || current.kind !== 'file') return current;
  await gateway.settle(current.inode as FileId);
  return currentOf(gateway, path, { follow, live: false });
}

function expectationOf(current: Attributes | null): Expectation {
  if (current === null) return { kind: 'nothing' };
  const { inode, kind, contents } = current;
  return kind === 'file' ? { kind: 'contents', inode, contents } : { kind: 'inode', inode };
}

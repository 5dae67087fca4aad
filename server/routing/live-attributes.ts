import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import { laterNs } from '../../base/times.ts';
import type { World } from '../../base/world.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import { contentVersionCompare } from '../../wire/content-version.ts';
import type { FileState } from '../../wire/http-api.ts';

const LISTING_PARALLEL = 16;
/** Time-out for all primaries of one listing together. */
const LISTING_MERGE_MS = 1000;

interface AnsweredAttributes {
  readonly attributes: Attributes;
  readonly entries: readonly { readonly attributes: Attributes }[];
}

export type QueryState = (file: FileId, timeoutMs?: number) => Promise<FileState>;

/** Replaces the catalog's attributes of live files in an answer by those of their primaries. */
export async function withLiveStates<Result extends Partial<AnsweredAttributes>>(
  result: Result,
  ask: QueryState,
  world: World,
): Promise<Result> {
  const { attributes, entries } = result;
  if (attributes !== undefined) return { ...result, attributes: await merged(attributes, ask) };
  if (entries !== undefined) return { ...result, entries: await mergedEntries(entries, ask, world) };
  return result;
}

/** The size is always the primary's; a modification time set at the catalog counts until the contents are newer. */
export function attributesWithState(attributes: Attributes, state: FileState): Attributes {
  const newer = contentVersionCompare(state.contents, attributes.contents) > 0;
  const { holeBytes: _, ...others } = attributes;
  return {
    ...others,
    sizeBytes: state.sizeBytes,
    // Uncounted holes are reported as none: a copy must not take data for a hole.
    ...(state.holeBytes !== undefined && { holeBytes: state.holeBytes }),
    modifiedNs: newer ? state.modifiedNs : attributes.modifiedNs,
    // A change of contents changes ctime as well, as the catalog will record when the file is settled.
    changedNs: newer ? laterNs(state.modifiedNs, attributes.changedNs) : attributes.changedNs,
    contents: newer ? state.contents : attributes.contents,
  };
}

async function merged(attributes: Attributes, ask: QueryState, timeoutMs?: number): Promise<Attributes> {
  if (!attributes.live || attributes.kind !== 'file') return attributes;
  return attributesWithState(attributes, await ask(attributes.inode as FileId, timeoutMs));
}

/** A listing promises less than a stat of one file: if a primary fails or is late, the catalog's attributes stay. */
async function mergedEntries<Entry extends { readonly attributes: Attributes }>(
  entries: readonly Entry[],
  ask: QueryState,
  world: World,
): Promise<readonly Entry[]> {
  const results = [...entries];
  const deadlineMs = world.nowMs() + LISTING_MERGE_MS;
  const live = entries.flatMap(({ attributes }, index) =>
    attributes.live && attributes.kind === 'file' ? [index] : [],
  );
  const waiting = live.values();
  const worker = async () => {
    for (const index of waiting) {
      const timeoutMs = deadlineMs - world.nowMs();
      if (timeoutMs <= 0) return;
      const entry = entries[index] as Entry;
      try {
        results[index] = { ...entry, attributes: await merged(entry.attributes, ask, timeoutMs) };
      } catch (error) {
        if (!(error instanceof ServiceError)) throw error;
      }
    }
  };
  // The workers share one iterator: each live entry is taken by the first free worker.
  await Promise.all(Array.from({ length: Math.min(LISTING_PARALLEL, live.length) }, worker));
  return results;
}

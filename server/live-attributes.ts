import { ServiceError } from '../base/errors.ts';
import type { FileId } from '../base/ids.ts';
import { laterNs } from '../base/times.ts';
import type { World } from '../base/world.ts';
import type { Attributes } from '../wire/catalog-api.ts';
import { contentVersionCompare } from '../wire/content-version.ts';
import type { FileState } from '../wire/http-api.ts';

/** Live files of one listing whose primaries are asked at the same time. */
const LISTING_PARALLEL = 16;
/** How long all of one listing's primaries together may take to answer. */
const LISTING_MERGE_MS = 1000;

/** What answers tell of inodes. */
interface Told {
  readonly attributes: Attributes;
  readonly entries: readonly { readonly attributes: Attributes }[];
}

/** Asks a file's primary. @param timeoutMs instead of the operation time-out */
export type AskState = (file: FileId, timeoutMs?: number) => Promise<FileState>;

/** What the catalog answered to a query or a command, with what the primaries of live files know instead of what the catalog was last told. */
export async function withLiveStates<Result extends Partial<Told>>(
  result: Result,
  ask: AskState,
  world: World,
): Promise<Result> {
  const { attributes, entries } = result;
  if (attributes !== undefined) return { ...result, attributes: await merged(attributes, ask) };
  if (entries !== undefined) return { ...result, entries: await mergedEntries(entries, ask, world) };
  return result;
}

/**
 * What is known of a live file. A modification time that was set by hand stays in force against the
 * contents it was set on; the size is always the primary's.
 */
export function attributesWithState(attributes: Attributes, state: FileState): Attributes {
  const newer = contentVersionCompare(state.contents, attributes.contents) > 0;
  const { holeBytes: _, ...others } = attributes;
  return {
    ...others,
    sizeBytes: state.sizeBytes,
    // Holes that were not counted are none: who copies must not take data for a hole.
    ...(state.holeBytes !== undefined && { holeBytes: state.holeBytes }),
    modifiedNs: newer ? state.modifiedNs : attributes.modifiedNs,
    // A change of contents is one of the status as well, as the catalog will know once the file is settled.
    changedNs: newer ? laterNs(state.modifiedNs, attributes.changedNs) : attributes.changedNs,
    contents: newer ? state.contents : attributes.contents,
  };
}

async function merged(attributes: Attributes, ask: AskState, timeoutMs?: number): Promise<Attributes> {
  if (!attributes.live || attributes.kind !== 'file') return attributes;
  return attributesWithState(attributes, await ask(attributes.inode as FileId, timeoutMs));
}

/**
 * A listing names many files and promises less than a stat of one: what a primary does not say
 * within a short time is taken from the catalog.
 */
async function mergedEntries<Entry extends { readonly attributes: Attributes }>(
  entries: readonly Entry[],
  ask: AskState,
  world: World,
): Promise<readonly Entry[]> {
  const told = [...entries];
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
        told[index] = { ...entry, attributes: await merged(entry.attributes, ask, timeoutMs) };
      } catch (error) {
        if (!(error instanceof ServiceError)) throw error;
      }
    }
  };
  // The workers share one iterator: each live entry is taken by the first that is free.
  await Promise.all(Array.from({ length: Math.min(LISTING_PARALLEL, live.length) }, worker));
  return told;
}

/** What the attributes of a persistent volume say about its place in the cluster. */
import { isTreeName } from '../../wire/access.ts';
import { CallFailure, invalid } from './call-failure.ts';
import type { Texts } from './messages.ts';
import { directoryOf } from './parameters.ts';

export const SUBDIR = 'subdir';
const VOLUME = 'volume';
const EPHEMERAL = 'csi.storage.k8s.io/ephemeral';
const OF_ORCHESTRATOR = /^(?:csi\.storage\.k8s\.io|storage\.kubernetes\.io)\//;

export interface MountedTree {
  /** `VOLUME` or `VOLUME@SNAPSHOT`. */
  readonly tree: string;
  readonly path: string;
}

/**
 * @returns what is mounted for a volume id: by default the volume of that name. Persistent volumes that an
 * administrator made may name another, since each needs an id of its own.
 */
export function mountedTree(volumeId: string, context: Texts): MountedTree {
  const unknown = Object.keys(context).find(
    (key) => key !== SUBDIR && key !== VOLUME && !OF_ORCHESTRATOR.test(key),
  );
  if (unknown !== undefined)
    throw invalid(`There is no volume attribute "${unknown}": known are ${VOLUME} and ${SUBDIR}`);
  const tree = context[VOLUME] ?? volumeId;
  if (!isTreeName(tree)) {
    if (context[VOLUME] === undefined) throw new CallFailure('NOT_FOUND', `There is no volume ${volumeId}`);
    throw invalid(`Cannot use "${tree}" as the volume attribute ${VOLUME}: it is VOLUME or VOLUME@SNAPSHOT`);
  }
  try {
    return { tree, path: directoryOf(context[SUBDIR] ?? '/') };
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    throw invalid(`Cannot use "${context[SUBDIR]}" as the volume attribute ${SUBDIR}: ${error.message}`);
  }
}

/** Whether a volume is made for one pod, and deleted with it. */
export function isEphemeral(context: Texts): boolean {
  return context[EPHEMERAL] === 'true';
}

/** @returns the attributes that the pod gives */
export function ownAttributes(context: Texts): Texts {
  return Object.fromEntries(Object.entries(context).filter(([key]) => !OF_ORCHESTRATOR.test(key)));
}

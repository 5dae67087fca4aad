import type { Attributes } from '../../wire/catalog-api.ts';
import type { PlacementClass } from '../../wire/placement-class.ts';
import type { CallOptions } from '../transport/exchange.ts';
import type { ClusterClient } from './cluster-client.ts';

/** Servers and number of replicas of a file, or of what is created in a directory. */
export interface FileClass extends PlacementClass {
  readonly replicas: number;
  /** `VOLUME:/directory` that has the class; null if it is the volume's. */
  readonly directory: string | null;
}

export async function fileClassOf(
  client: ClusterClient,
  { volume: name, placement }: Pick<Attributes, 'volume' | 'placement'>,
  call: CallOptions,
): Promise<FileClass> {
  const { volume } = await client.query({ kind: 'volume', name }, call);
  const ofVolume = { ...classIn(volume), replicas: volume.replicas, directory: null };
  if (placement === undefined) return ofVolume;
  const { classes } = await client.query({ kind: 'placement-classes', paths: true }, call);
  const found = classes.find(({ directory }) => directory === placement);
  if (found === undefined) return ofVolume;
  const { replicas = volume.replicas, path = '' } = found;
  return { ...classIn(found), replicas, directory: `${name}:${path}` };
}

function classIn({ labels, zones }: PlacementClass): PlacementClass {
  return { ...(labels === undefined ? {} : { labels }), ...(zones === undefined ? {} : { zones }) };
}

import type { VolumeInfo } from '../../wire/catalog-api.ts';
import type { Catalogs } from './service-interfaces.ts';

/** Adds to volumes in an answer where they are attached: the list says it, and their own catalogs do not know. */
export function withAttachments<Result extends object>(
  result: Result,
  catalogs: Pick<Catalogs, 'row' | 'ofVolume'>,
): Result {
  const attached = (volume: VolumeInfo): VolumeInfo => {
    const inode = catalogs.row(catalogs.ofVolume(volume.name))?.attached;
    return inode === undefined ? volume : { ...volume, attached: inode };
  };
  const { volume, volumes } = result as { readonly volume?: unknown; readonly volumes?: unknown };
  if (Array.isArray(volumes)) return { ...result, volumes: (volumes as VolumeInfo[]).map(attached) };
  return typeof volume === 'object' && volume !== null
    ? { ...result, volume: attached(volume as VolumeInfo) }
    : result;
}

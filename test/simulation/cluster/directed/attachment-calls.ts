import { ServiceError } from '../../../../base/errors.ts';
import type { ClusterClient } from '../../../../client/cluster/cluster-client.ts';
import type { VolumeInfo } from '../../../../wire/catalog-api.ts';
import type { Calls } from './client-calls.ts';

/** Asks a server by itself. */
type Ask = (server: string, query: object) => Promise<unknown>;

interface Spot {
  readonly volume: string;
  readonly path: string;
}

/** The single steps by which volumes are attached and detached: a schedule may end between them. */
export function attachmentCalls(client: ClusterClient, usual: string, ask: Ask): Calls {
  /** @param text a path, in the usual volume unless it names another: `more:/x` */
  const spotOf = (text: string): Spot => {
    const [path = '', volume = usual] = text.split(':').reverse();
    return { volume, path };
  };
  const junctionAt = async (text: string) => {
    const query = { kind: 'resolve', ...spotOf(text), follow: false, junction: 'self' } as const;
    return (await client.query(query)).attributes;
  };
  /** Where the volume is attached, by its attributes in an answer. */
  const placeOf = async ({ attached }: Pick<VolumeInfo, 'attached'>): Promise<string> => {
    if (attached === undefined) return 'nowhere';
    const { paths } = await client.query({ kind: 'paths', inodes: [attached] });
    const [found] = paths;
    return found === undefined ? 'gone' : `${found.volume}:${found.path}`;
  };
  return {
    /** `junction /x more`: makes the directory at which the volume may be attached */
    junction: async (text = '', volume = '') => {
      const catalog = await client.catalogOfVolume(volume);
      const command = { kind: 'junction-create', place: spotOf(text), catalog, volume } as const;
      await client.command({ ...command, mode: 0o755, uid: 0, gid: 0 });
    },
    attach: async (text = '', name = '') => {
      const { inode } = await junctionAt(text);
      await client.command({ kind: 'volume-attach', name, inode });
    },
    /** `detach more`, `detach more /x`: wherever it is attached, or if it is attached there */
    detach: async (name = '', text = '') => {
      const inode = text === '' ? {} : { inode: (await junctionAt(text)).inode };
      await client.command({ kind: 'volume-detach', name, ...inode });
    },
    'remove-junction': async (text = '') => {
      const { inode } = await junctionAt(text);
      await client.command({ kind: 'junction-remove', inode });
    },
    /** `attached more`: returns where the volume is attached, as the root catalog says */
    attached: async (name = '') => {
      const { catalogs } = await client.query({ kind: 'catalogs' });
      const row = catalogs.find((one) => one.name === name && one.state !== 'removed');
      if (row === undefined) throw new ServiceError('not-found', `There is no volume "${name}"`);
      return placeOf(row);
    },
    /** `attached-at s1 more`: the same, by the list that a server has */
    'attached-at': async (server = '', name = '') => {
      const { volume } = (await ask(server, { kind: 'volume', name })) as { readonly volume: VolumeInfo };
      return placeOf(volume);
    },
    /** `leads /x/f`: returns where the path continues in another volume */
    leads: async (text = '') => {
      try {
        const { volume, path } = spotOf(text);
        await client.query({ kind: 'resolve', volume, path, follow: true });
      } catch (error) {
        const junction = error instanceof ServiceError ? error.details.junction : undefined;
        if (junction !== undefined) return `${junction.volume}:${junction.path}`;
        throw error;
      }
      return 'nowhere';
    },
  };
}

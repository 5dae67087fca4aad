import { Readable } from 'node:stream';
import { systemWorld } from '../../world/system-world.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import type { FileHandle } from '../cluster/file-handle.ts';
import { downloadFile } from '../transfer/download.ts';
import { uploadFile } from '../transfer/upload.ts';
import type { CallOptions } from '../transport/exchange.ts';
import type { Phase } from './phase.ts';

const SMALL_BYTES = 4096;

export interface ClusterPhaseOptions {
  readonly volume: string;
  readonly directory: string;
  readonly workers: number;
  readonly fileBytes: number;
  readonly call: CallOptions;
}

/** Operations on the servers themselves; a phase needs what the one before has left. */
export function clusterPhases(client: ClusterClient, options: ClusterPhaseOptions): Phase[] {
  const { volume, directory, fileBytes, call } = options;
  const bytes = systemWorld.randomBytes(fileBytes);
  const pathOf = (worker: number): string => `${directory}/file-${worker}`;
  const handles = new Map<number, Promise<FileHandle>>();
  const opened = (worker: number): Promise<FileHandle> => {
    const known = handles.get(worker);
    if (known !== undefined) return known;
    const opening = client.resolve(volume, pathOf(worker), call).then(({ inode, replicas }) => {
      return client.openFile(inode, { replicas });
    });
    handles.set(worker, opening);
    return opening;
  };
  return [
    {
      name: 'put',
      operationBytes: fileBytes,
      async step(worker) {
        await uploadFile(client, volume, pathOf(worker), Readable.from([bytes]), call);
      },
    },
    {
      name: 'get',
      operationBytes: fileBytes,
      async step(worker) {
        const { chunks } = await downloadFile(client, volume, pathOf(worker), call);
        let count = 0;
        for await (const chunk of chunks) count += chunk.length;
        if (count !== fileBytes)
          throw new Error(`${pathOf(worker)} has ${count} bytes instead of ${fileBytes}`);
      },
    },
    {
      name: 'stat',
      operationBytes: 0,
      async step(worker) {
        await client.resolve(volume, pathOf(worker), call);
      },
    },
    {
      name: 'overwrite 4 KiB',
      operationBytes: Math.min(SMALL_BYTES, fileBytes),
      async step(worker, count) {
        const length = Math.min(SMALL_BYTES, fileBytes);
        const places = Math.floor(fileBytes / length);
        const file = await opened(worker);
        await file.write((count % places) * length, bytes.subarray(0, length), call);
      },
    },
  ];
}

import type { FileSystemBackend } from './backend.ts';
import { withDeadline } from './deadline.ts';
import { FileSystem } from './file-system.ts';
import type { Log, Transport } from './transport.ts';

export interface MountOptions {
  readonly directory: string;
  readonly source: string;
  /** The longest that a program under the mount waits for the cluster. */
  readonly limitMs: number;
  readonly xattrs: boolean;
  readonly log: Log;
}

export interface Mounted {
  /** Resolves when the mount is gone, by whomever, and what was written has arrived. */
  readonly ended: Promise<void>;
  /** Everything written arrives, then the mount goes. */
  unmount(): Promise<void>;
}

/**
 * Puts the volume of `backend` at a directory. The process should do nothing else: every call of every
 * program under the mount goes through its event loop.
 *
 * @throws ServiceError when the cluster or the volume is not there, before anything is mounted
 */
export async function mountVolume(
  backend: FileSystemBackend,
  transport: Transport,
  options: MountOptions,
): Promise<Mounted> {
  const { limitMs, log } = options;
  const root = await withDeadline(backend.start(), limitMs, 'Reaching the cluster');
  const fileSystem = new FileSystem(backend, root, limitMs, log);
  const stop = async (): Promise<void> => {
    await fileSystem.stop();
    await backend.stop();
  };
  try {
    const { source, xattrs, directory } = options;
    const mounted = await transport(directory, fileSystem, { source, limitMs, xattrs, log });
    return {
      ended: mounted.ended.then(stop),
      unmount: async () => {
        await fileSystem.drain();
        await mounted.unmount();
      },
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

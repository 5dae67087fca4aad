import type { Command } from 'commander';
import { ServiceError } from '../../base/errors.ts';
import { Access, accessFiles } from '../access.ts';
import { othersAllowed } from '../doctor/machine.ts';
import { generalFailure } from '../failure.ts';
import { type Mounted, mountInForeground, mountVolume } from '../mount.ts';
import { parseMountOptions, parseMountSource } from '../mount-options.ts';
import { accessOptions, serversOf, withClient } from './cluster-command.ts';

/** What a command line, or mount(8), asks to be mounted. */
export interface MountRequest {
  readonly source: string;
  readonly directory: string;
  /** As they stand behind `-o`. */
  readonly texts: readonly string[];
  readonly log: string | undefined;
  /** Options that are not known are passed over. */
  readonly sloppy?: boolean;
  readonly foreground?: boolean;
  /** Called when the mount is usable. */
  readonly say: (mounted: Mounted) => void;
}

/** Mounts what the request names, after a look at whether it is there. Sets the exit code in the foreground. */
export async function mountFromTexts(request: MountRequest, command: Command): Promise<void> {
  const { directory, texts, log, sloppy = false } = request;
  const { volume, path } = parseMountSource(request.source);
  const settings = parseMountOptions(texts, sloppy);
  const access = accessFiles({ ...accessOptions(command), ...settings.access });
  const servers = settings.servers.length > 0 ? settings.servers : serversOf(command);
  if (settings.allowOther && process.getuid?.() !== 0 && !(await othersAllowed())) {
    throw generalFailure(
      'Cannot mount with allow_other: /etc/fuse.conf lets only root do that',
      'as root: echo user_allow_other >> /etc/fuse.conf',
    );
  }
  await withClient(
    command,
    async (client, call) => {
      // Asked here, so that the answer does not have to come through the mount's process.
      const { kind } = await client.resolve(volume, path, call);
      if (kind !== 'directory') {
        throw new ServiceError('not-directory', `Cannot mount ${volume}:${path}: it is not a directory`);
      }
    },
    servers,
    new Access(access),
  );
  const options = {
    ...{ servers, volume, path, directory, options: texts, sloppy, access },
    ...(log === undefined ? {} : { log }),
  };
  if (request.foreground === true) process.exitCode = await mountInForeground(options, request.say);
  else request.say(await mountVolume(options));
}

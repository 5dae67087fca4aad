import type { Command } from 'commander';
import { ServiceError } from '../../base/errors.ts';
import { located } from '../cluster/location.ts';
import { othersAllowed } from '../doctor/machine.ts';
import { optionText, parseMountOptions, parseMountSource } from '../mounts/mount-options.ts';
import { type Mounted, mountInForeground, mountVolume } from '../mounts/mount-process.ts';
import { generalFailure } from '../terminal/failure.ts';
import { Access, accessFiles } from '../transport/access.ts';
import { accessOptions, serversOf, withClient, zoneOf } from './cluster-command.ts';

export interface MountRequest {
  readonly source: string;
  readonly directory: string;
  readonly texts: readonly string[];
  readonly log: string | undefined;
  readonly sloppy?: boolean;
  readonly foreground?: boolean;
  readonly say: (mounted: Mounted) => void;
}

/** Mounts what the request names, after a check that it exists. Sets the exit code in the foreground. */
export async function mountFromTexts(request: MountRequest, command: Command): Promise<void> {
  const { directory, texts, log, sloppy = false } = request;
  const source = parseMountSource(request.source);
  const settings = parseMountOptions(texts, sloppy);
  const access = accessFiles({ ...accessOptions(command), ...settings.access });
  const servers = settings.servers.length > 0 ? settings.servers : serversOf(command);
  if (settings.allowOther && process.getuid?.() !== 0 && !(await othersAllowed())) {
    throw generalFailure(
      'Cannot mount with allow_other: /etc/fuse.conf lets only root do that',
      'as root: echo user_allow_other >> /etc/fuse.conf',
    );
  }
  let place = source;
  await withClient(
    command,
    async (client, call) => {
      place = await located(client, source, call);
      const { volume, path } = place;
      // Here, so that the error needs no way through the mount's process.
      const { kind } = await client.resolve(volume, path, call);
      if (kind !== 'directory') {
        throw new ServiceError('not-directory', `Cannot mount ${volume}:${path}: it is not a directory`);
      }
    },
    servers,
    new Access(access),
  );
  const zone = settings.zone === null ? zoneOf(command) : null;
  const all = zone === null ? texts : [...texts, optionText('zone', zone)];
  const options = {
    ...{ servers, ...place, directory, options: all, sloppy, access },
    ...(log === undefined ? {} : { log }),
  };
  if (request.foreground === true) process.exitCode = await mountInForeground(options, request.say);
  else request.say(await mountVolume(options));
}

/** What a volume is to be used for. */
import { type MountSettings, parseMountOptions } from '../mounts/mount-options.ts';
import { CommandFailure } from '../terminal/failure.ts';
import { invalid } from './call-failure.ts';
import type { AccessMode, VolumeCapability } from './messages.ts';

const READERS: readonly AccessMode[] = ['SINGLE_NODE_READER_ONLY', 'MULTI_NODE_READER_ONLY'];
const WRITERS: readonly AccessMode[] = [
  'SINGLE_NODE_WRITER',
  'SINGLE_NODE_SINGLE_WRITER',
  'SINGLE_NODE_MULTI_WRITER',
  'MULTI_NODE_SINGLE_WRITER',
  'MULTI_NODE_MULTI_WRITER',
];
const FLAGS_BYTES_MAX = 4_096;
const FILE_SYSTEM = 'leasehold';

/**
 * Mount options that flags may not have: the plugin says where the cluster is and who asks, and the set-user-id bits
 * and devices of a volume are not to be trusted on a node that the volume's writers do not administer.
 */
const RESERVED: Readonly<Record<string, (settings: MountSettings) => boolean>> = {
  servers: ({ servers }) => servers.length > 0,
  'ca, token_file, client_cert, client_key, revoked': ({ access }) => Object.keys(access).length > 0,
  fsname: ({ source }) => source !== null,
  suid: ({ suid }) => suid,
  dev: ({ devices }) => devices,
};

export interface Use {
  readonly readOnly: boolean;
  /** Published at one path at a time. */
  readonly single: boolean;
  readonly flags: readonly string[];
}

/** @throws CallFailure `INVALID_ARGUMENT` if the capability is missing, malformed or not supported */
export function useOf(capability: VolumeCapability | null): Use {
  if (capability === null) throw invalid('The request has no volume capability');
  const { block, mount, accessMode } = capability;
  if (block) throw invalid('Cannot provide a block device: a Leasehold volume is a file system');
  if (!mount) throw invalid('The volume capability has no access type');
  const { fsType, mountFlags } = mount;
  if (fsType !== '' && fsType !== FILE_SYSTEM)
    throw invalid(
      `Cannot provide a file system of type "${fsType}": leave fsType empty, or use ${FILE_SYSTEM}`,
    );
  const mode = accessMode?.mode ?? 'UNKNOWN';
  const readOnly = READERS.some((one) => one === mode);
  if (!readOnly && !WRITERS.some((one) => one === mode))
    throw invalid(`The volume capability has no known access mode: ${mode}`);
  checkFlags(mountFlags);
  return { readOnly, single: mode === 'SINGLE_NODE_SINGLE_WRITER', flags: mountFlags };
}

export function checkUses(capabilities: readonly VolumeCapability[]): void {
  if (capabilities.length === 0) throw invalid('The request has no volume capabilities');
  for (const capability of capabilities) useOf(capability);
}

/** @throws CallFailure that names the first flag that is no option of a mount, or is reserved */
function checkFlags(flags: readonly string[]): void {
  if (flags.reduce((sum, flag) => sum + Buffer.byteLength(flag), 0) > FLAGS_BYTES_MAX)
    throw invalid(`The mount flags are longer than ${FLAGS_BYTES_MAX} bytes`);
  const settings = settingsOf(flags);
  for (const [names, isGiven] of Object.entries(RESERVED)) {
    if (isGiven(settings))
      throw invalid(`Cannot use the mount flag ${names}: the plugin sets or forbids it; remove the flag`);
  }
}

function settingsOf(flags: readonly string[]): MountSettings {
  try {
    return parseMountOptions(flags);
  } catch (error) {
    if (!(error instanceof CommandFailure)) throw error;
    throw invalid(`${error.message}${error.hint === '' ? '' : `; ${error.hint}`}`);
  }
}

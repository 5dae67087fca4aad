import { InvalidArgumentError } from 'commander';
import { isVolumeName } from '../../wire/access.ts';

export interface SnapshotName {
  readonly volume: string;
  readonly name: string;
}

/** Parses VOLUME@NAME. */
export function snapshotName(text: string): SnapshotName {
  const [volume, name, ...more] = text.split('@');
  if (!isVolumeName(volume) || !isVolumeName(name) || more.length > 0)
    throw new InvalidArgumentError(
      'A snapshot is VOLUME@NAME, each 1 to 63 of a-z, 0-9, ".", "_" and "-", a letter or digit first.',
    );
  return { volume, name };
}

import type { FileParts } from '../contents/contents-parts.ts';
import type { OpenFiles } from '../contents/open-files.ts';
import type { Inodes } from '../metadata/inodes.ts';
import type { RemovedDirectories } from '../metadata/removed-directories.ts';

export interface CallParts extends FileParts {
  readonly root: number;
  readonly files: OpenFiles;
  readonly inodes: Inodes;
  readonly removed: RemovedDirectories;
}

/**
 * What the node's plugin must remember between its processes, in a folder of the node: what is staged where, with which
 * options and token, and where it is published. A record is written before the mount and removed after it.
 */
import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isSystemError } from '../terminal/failure.ts';
import { writeFileAtomically } from '../transfer/atomic-file.ts';

export interface StagedVolume {
  readonly volumeId: string;
  /** Where it is mounted. */
  readonly directory: string;
  /** `VOLUME` or `VOLUME@SNAPSHOT`. */
  readonly tree: string;
  readonly path: string;
  readonly flags: readonly string[];
  readonly readOnly: boolean;
  readonly single: boolean;
  readonly ephemeral: boolean;
  /** The file of the token that came with the call; null: the plugin's own credentials. */
  readonly tokenFile: string | null;
}

export interface PublishedVolume {
  readonly volumeId: string;
  readonly staging: string;
  readonly directory: string;
  readonly readOnly: boolean;
}

const FOLDERS = { staged: 'staged', published: 'published', tokens: 'tokens', mounts: 'mounts' } as const;
const FOLDER_MODE = 0o700;
const FILE_MODE = 0o600;

export class NodeState {
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
  }

  async prepare(): Promise<void> {
    for (const name of Object.values(FOLDERS))
      await mkdir(join(this.#folder, name), { recursive: true, mode: FOLDER_MODE });
  }

  staged(directory: string): Promise<StagedVolume | null> {
    return this.#read('staged', directory);
  }

  published(directory: string): Promise<PublishedVolume | null> {
    return this.#read('published', directory);
  }

  allStaged(): Promise<StagedVolume[]> {
    return this.#all('staged');
  }

  allPublished(): Promise<PublishedVolume[]> {
    return this.#all('published');
  }

  async publishedOf(staging: string): Promise<PublishedVolume[]> {
    return (await this.allPublished()).filter((one) => one.staging === staging);
  }

  putStaged(staged: StagedVolume): Promise<void> {
    return this.#write('staged', staged.directory, JSON.stringify(staged));
  }

  putPublished(published: PublishedVolume): Promise<void> {
    return this.#write('published', published.directory, JSON.stringify(published));
  }

  /** Stores a token for the mount at a directory. @returns its file */
  async putToken(directory: string, token: string): Promise<string> {
    await this.#write('tokens', directory, token);
    return this.#file('tokens', directory);
  }

  /** @returns where a volume is mounted for which the orchestrator has no staging path */
  mountPoint(volumeId: string): string {
    return this.#file('mounts', volumeId);
  }

  async removeStaged(directory: string): Promise<void> {
    await rm(this.#file('tokens', directory), { force: true });
    await rm(this.#file('staged', directory), { force: true });
  }

  async removePublished(directory: string): Promise<void> {
    await rm(this.#file('published', directory), { force: true });
  }

  #file(kind: keyof typeof FOLDERS, directory: string): string {
    return join(this.#folder, FOLDERS[kind], createHash('sha256').update(directory).digest('hex'));
  }

  async #write(kind: keyof typeof FOLDERS, directory: string, text: string): Promise<void> {
    await writeFileAtomically(this.#file(kind, directory), FILE_MODE, async (file) => {
      await file.writeFile(text);
    });
  }

  async #read<Record>(kind: 'staged' | 'published', directory: string): Promise<Record | null> {
    return readRecord<Record>(this.#file(kind, directory));
  }

  async #all<Record>(kind: 'staged' | 'published'): Promise<Record[]> {
    const folder = join(this.#folder, FOLDERS[kind]);
    const records: Record[] = [];
    for (const name of await readdir(folder)) {
      // Others are files that an ended process had not yet renamed.
      const record = /^[0-9a-f]{64}$/.test(name) ? await readRecord<Record>(join(folder, name)) : null;
      if (record !== null) records.push(record);
    }
    return records;
  }
}

async function readRecord<Record>(file: string): Promise<Record | null> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as Record;
  } catch (error) {
    if (isSystemError(error) && error.code === 'ENOENT') return null;
    throw error;
  }
}

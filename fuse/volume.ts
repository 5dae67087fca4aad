import type { KernelCache } from './answered.ts';
import type { FileKernel, FileSystemCalls } from './transport.ts';

/** The file system of one volume, or of several in one tree. */
export interface FileSystem extends FileSystemCalls {
  mounted(kernel: FileKernel): void;
  isOpenForWriting(inode: number): boolean;
  /** @see FileSystemBackend.numberOf */
  numberOf(inode: number): Promise<number>;
  /** @see FileSystemBackend.formerNumberOf */
  formerNumberOf(inode: number): number;
  openForWritingCount(): number;
  enableAccessTimes(isRecorded: boolean): void;
  /** For a descriptor of the mount's root in another volume: its `fsync` of this root returns each failure once. */
  trackErrors(handle: number): void;
  /** Called before another client changes the inode: drops what is cached of it here. */
  forget(inode: number): Promise<void>;
  /** Waits until all written bytes are at the cluster, or known to be lost. */
  drain(): Promise<void>;
  /** After the unmount: sends all written bytes, settles the files, sends access times. */
  stop(): Promise<void>;
}

export interface Volume {
  readonly fileSystem: FileSystem;
  /** How long the kernel may cache its answers. */
  readonly policy: KernelCache;
  /** As `FileSystem.stop`, and ends its client. */
  stop(): Promise<void>;
}

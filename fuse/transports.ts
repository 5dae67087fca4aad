import type { MountSettings } from '../client/mount-options.ts';
import { kernelExpiresNames, kernelObstacle, mountWithKernel } from './kernel/kernel-mount.ts';
import type { Transport } from './transport.ts';

/** `native` is a library for every user, `kernel` the protocol itself, for root; `auto` takes the better that works. */
export type TransportName = MountSettings['transport'];

/** Loaded when it is used: without libfuse it cannot even be loaded. */
const mountNatively: Transport = async (directory, calls, options) => {
  const { mountWithBinding } = await import('./native/binding.ts');
  return mountWithBinding(directory, calls, options);
};

/** This process, or this machine, cannot have the transport that was asked for. */
export class TransportError extends Error {
  override readonly name = 'TransportError';
  /** What to do next, in a sentence without a period. */
  readonly hint: string;

  constructor(message: string, hint: string) {
    super(message);
    this.hint = hint;
  }
}

/** @throws TransportError where `kernel` is asked for and cannot be had */
export function transportNamed(name: TransportName): Transport {
  if (name === 'native') return mountNatively;
  const obstacle = kernelObstacle();
  if (obstacle === null) return mountWithKernel;
  if (name === 'auto') return mountNatively;
  const others = 'use --transport native, or leave it out: then the better one that works is taken';
  throw new TransportError(
    `the transport "kernel" cannot be used here: ${obstacle}`,
    process.getuid?.() === 0 ? others : `run it as root, or ${others}`,
  );
}

/** Whether the kernel drops single names on request over this transport, so that names can be cached until they are recalled. */
export function expiresNames(transport: Transport): boolean {
  return transport === mountWithKernel && kernelExpiresNames();
}

import { ErrnoError } from './errno.ts';
import { kernelObstacle, mountWithKernel } from './kernel/kernel-mount.ts';
import type { Transport } from './transport.ts';

/** `native` is a library for every user, `kernel` the protocol itself, for root; `auto` takes the better that works. */
export const TRANSPORT_NAMES = ['auto', 'kernel', 'native'] as const;
export type TransportName = (typeof TRANSPORT_NAMES)[number];

export function isTransportName(text: string): text is TransportName {
  return (TRANSPORT_NAMES as readonly string[]).includes(text);
}

/** Loaded when it is used: without libfuse it cannot even be loaded. */
const mountNatively: Transport = async (directory, calls, options) => {
  const { mountWithBinding } = await import('./binding.ts');
  return mountWithBinding(directory, calls, options);
};

/** @throws ErrnoError EPERM where `kernel` is asked for and cannot be had */
export function transportNamed(name: TransportName): Transport {
  if (name === 'native') return mountNatively;
  const obstacle = kernelObstacle();
  if (obstacle === null) return mountWithKernel;
  if (name === 'auto') return mountNatively;
  throw new ErrnoError('EPERM', `The transport "kernel" cannot be used: ${obstacle}`);
}

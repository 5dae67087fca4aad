import type { MountSettings } from '../client/mounts/mount-options.ts';
import { kernelExpiresNames, kernelTransportObstacle, mountWithKernel } from './kernel/kernel-mount.ts';
import type { Transport } from './transport.ts';

/** `native`: a library, for all users. `kernel`: the protocol itself, for root. `auto`: the latter if it works. */
export type TransportName = MountSettings['transport'];

/** Loaded on use: without libfuse the import fails. */
const mountNatively: Transport = async (directory, calls, options) => {
  const { mountWithBinding } = await import('./native/binding.ts');
  return mountWithBinding(directory, calls, options);
};

export class TransportError extends Error {
  override readonly name = 'TransportError';
  readonly hint: string;

  constructor(message: string, hint: string) {
    super(message);
    this.hint = hint;
  }
}

/** @throws TransportError if `kernel` is requested and does not work here */
export function transportNamed(name: TransportName): Transport {
  if (name === 'native') return mountNatively;
  const obstacle = kernelTransportObstacle();
  if (obstacle === null) return mountWithKernel;
  if (name === 'auto') return mountNatively;
  const others = 'use --transport native, or leave it out: then the better one that works is taken';
  throw new TransportError(
    `the transport "kernel" cannot be used here: ${obstacle}`,
    process.getuid?.() === 0 ? others : `run it as root, or ${others}`,
  );
}

/** @throws TransportError if the kernel must have a device number and cannot */
export function transportOf({
  transport,
  deviceNumber,
}: Pick<MountSettings, 'transport' | 'deviceNumber'>): Transport {
  if (deviceNumber === null) return transportNamed(transport);
  if (transport !== 'native') return transportNamed('kernel');
  throw new TransportError(
    'the option "device_number" needs the transport "kernel"',
    'leave out device_number, or transport=native',
  );
}

/** Whether the kernel drops single names on request, so that it may cache names until a recall. */
export function expiresNames(transport: Transport): boolean {
  return transport === mountWithKernel && kernelExpiresNames();
}

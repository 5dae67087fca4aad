import { isIP } from 'node:net';

export function isLoopback(hostname: string): boolean {
  if (hostname === 'localhost' || hostname.endsWith('.localhost') || hostname === '[::1]') return true;
  if (hostname.startsWith('[::ffff:7f')) return true;
  return isIP(hostname) === 4 && hostname.startsWith('127.');
}

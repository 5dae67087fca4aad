/** Groups of the /64 prefix of an IPv6 address: one customer, or one attacker, has all addresses of a /64. */
const NETWORK_GROUPS = 4;
const GROUPS = 8;

/** Returns the key by which limits count an address: an IPv4 address itself, the /64 prefix of an IPv6 address. */
export function addressKey(address: string): string {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (mapped !== undefined) return mapped;
  const [plain = ''] = address.split('%');
  if (!plain.includes(':')) return address;
  const [front = '', back] = plain.split('::');
  const head = front === '' ? [] : front.split(':');
  const tail = back === undefined || back === '' ? [] : back.split(':');
  const zeros = Array.from({ length: Math.max(0, GROUPS - head.length - tail.length) }, () => '0');
  const groups = [...head, ...(back === undefined ? [] : zeros), ...tail].slice(0, NETWORK_GROUPS);
  return `${groups.map((group) => Number.parseInt(group, 16).toString(16)).join(':')}::/64`;
}

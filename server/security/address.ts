/** Leading groups of an IPv6 address that name a network: one customer, one machine or one attacker has all of its addresses. */
const NETWORK_GROUPS = 4;
const GROUPS = 8;

/** @returns that by which limits count an address: an IPv4 address itself, of an IPv6 address its /64 network */
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

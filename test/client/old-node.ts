/**
 * `node --import` loads this before the launcher: it makes the launcher take this Node, once, for one that is too old,
 * and start the package's.
 */
if (process.env.OLD_NODE_MET === undefined) {
  // The process that it starts takes its Node as it is.
  process.env.OLD_NODE_MET = '1';
  Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '20.0.0' } });
}

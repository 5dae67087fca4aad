/** Loaded before the launcher by `node --import`: it takes this Node, once, for one that is too old, and starts the package's. */
if (process.env.OLD_NODE_MET === undefined) {
  // A process that it starts is of the Node that it is.
  process.env.OLD_NODE_MET = '1';
  Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '20.0.0' } });
}

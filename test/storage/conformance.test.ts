import { storeConformance } from '../conformance/store.ts';
import { MemoryStore } from './memory-store.ts';
import { DiskFixture } from './stores.ts';

storeConformance('memory store', async () => {
  const store = new MemoryStore();
  return { store, reopen: null, dispose: () => store.close() };
});

storeConformance('disk store', () => DiskFixture.make());
storeConformance('disk store that removes objects in slices of two', () =>
  DiskFixture.make({ rowsPerSlice: 2 }),
);

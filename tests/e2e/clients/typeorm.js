// Transactions by TypeORM.  node typeorm.js PORT prints what test_transactions_of_drivers.py expects, as JSON.
require('reflect-metadata');
const { DataSource, EntitySchema } = require('typeorm');

const DEADLOCK = 1213;
const Account = new EntitySchema({ name: 'Account', columns: {
  id: { type: Number, primary: true, generated: true }, owner: { type: 'varchar', length: 20, unique: true }, n: { type: 'int' } } });
const db = new DataSource({ type: 'mysql', host: '127.0.0.1', port: +process.argv[2], username: 'root', database: 'app',
  entities: [Account], synchronize: true });
const failed = promise => promise.then(() => 0, error => error.errno);
const all = manager => manager.find(Account, { order: { id: 'ASC' } }).then(rows => rows.map(row => `${row.owner} ${row.n}`));

async function undone(begin, work) {  // the transaction is rolled back, because its function throws
  const end = new Error('undo');
  let result;
  await begin(async m => { result = await work(m); throw end; }).catch(e => { if (e !== end) throw e; });
  return result;
}
const within = manager => work => manager.transaction(work);

async function tried() {
  let here = 0, open;
  const both = new Promise(resolve => { open = resolve; });
  const transfer = async (from, to) => {
    for (let count = 1; ; count++) {
      const code = await failed(db.transaction(async m => {
        await m.decrement(Account, { owner: from }, 'n', 1);
        if (count === 1) { if (++here === 2) open(); await both; }
        await m.increment(Account, { owner: to }, 'n', 1);
      }));
      if (code === 0) return count;
      if (code !== DEADLOCK) throw new Error(code);
    }
  };
  return (await Promise.all([transfer('ann', 'bob'), transfer('bob', 'ann')])).sort();
}

async function main() {
  const told = {};
  await db.initialize();
  told.committed = await db.transaction(async m => {
    await m.save(Account, [{ owner: 'ann', n: 10 }, { owner: 'bob', n: 20 }]);
    return all(m);
  });
  await undone(within(db.manager), m => m.update(Account, { owner: 'ann' }, { n: 99 }));
  told['rolled back'] = await all(db.manager);
  told.levels = [];
  for (const level of ['READ UNCOMMITTED', 'READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'])
    told.levels.push(await undone(work => db.transaction(level, work), m => m.findOneBy(Account, { id: 1 }).then(row => row.n)));
  told.nested = await db.transaction(async m => {
    await m.increment(Account, { owner: 'ann' }, 'n', 5);
    await undone(within(m), s => s.delete(Account, { owner: 'bob' }));
    await m.transaction(s => s.save(Account, { owner: 'cid', n: 1 }));
    return all(m);
  });
  told.duplicate = await failed(db.manager.insert(Account, { owner: 'ann', n: 1 }));
  told.locks = await undone(within(db.manager), async m => {
    await m.findOne(Account, { where: { owner: 'ann' }, lock: { mode: 'pessimistic_write' } });
    const find = onLocked => db.transaction(o => o.find(Account, { order: { id: 'ASC' }, lock: { mode: 'pessimistic_write', onLocked } }));
    return [await failed(find('nowait')), (await find('skip_locked')).map(row => row.owner)];
  });
  told.tries = await tried();
  told['in the end'] = await all(db.manager);
  await db.destroy();
  console.log(JSON.stringify(told));
}
main().catch(error => { console.error(error); process.exit(1); });

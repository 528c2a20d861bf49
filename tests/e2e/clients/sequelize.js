// Transactions by Sequelize.  node sequelize.js PORT prints what test_transactions_of_drivers.py expects, as JSON.
const { Sequelize, DataTypes, Transaction } = require('sequelize');

const DEADLOCK = 1213;
const db = new Sequelize('app', 'root', '', { host: '127.0.0.1', port: +process.argv[2], dialect: 'mysql', logging: false });
const Account = db.define('account', {
  owner: { type: DataTypes.STRING(20), unique: true }, n: { type: DataTypes.INTEGER, allowNull: false } });
const number = error => (error.parent || error).errno;
const failed = promise => promise.then(() => 0, number);
const all = transaction => Account.findAll({ order: ['id'], raw: true, transaction })
  .then(rows => rows.map(row => `${row.owner} ${row.n}`));

async function undone(work, options = {}) {  // the transaction is rolled back, because its function throws
  const end = new Error('undo');
  let result;
  await db.transaction(options, async t => { result = await work(t); throw end; }).catch(e => { if (e !== end) throw e; });
  return result;
}

async function tried() {
  let here = 0, open;
  const both = new Promise(resolve => { open = resolve; });
  const transfer = async (from, to) => {
    for (let count = 1; ; count++) {
      const code = await failed(db.transaction(async transaction => {
        await Account.decrement('n', { where: { owner: from }, transaction });
        if (count === 1) { if (++here === 2) open(); await both; }
        await Account.increment('n', { where: { owner: to }, transaction });
      }));
      if (code === 0) return count;
      if (code !== DEADLOCK) throw new Error(code);
    }
  };
  return (await Promise.all([transfer('ann', 'bob'), transfer('bob', 'ann')])).sort();
}

async function main() {
  const told = {};
  await db.sync();
  told.committed = await db.transaction(async transaction => {
    await Account.bulkCreate([{ owner: 'ann', n: 10 }, { owner: 'bob', n: 20 }], { transaction });
    return all(transaction);
  });
  await undone(transaction => Account.update({ n: 99 }, { where: {}, transaction }));
  told['rolled back'] = await all();
  told.levels = [];
  for (const isolationLevel of ['READ_UNCOMMITTED', 'READ_COMMITTED', 'REPEATABLE_READ', 'SERIALIZABLE'])
    told.levels.push(await undone(transaction => Account.findByPk(1, { transaction }).then(row => row.n),
      { isolationLevel: Transaction.ISOLATION_LEVELS[isolationLevel] }));
  told.nested = await db.transaction(async t => {
    await Account.increment('n', { by: 5, where: { owner: 'ann' }, transaction: t });
    await undone(s => Account.destroy({ where: {}, transaction: s }), { transaction: t });
    await db.transaction({ transaction: t }, s => Account.create({ owner: 'cid', n: 1 }, { transaction: s }));
    return all(t);
  });
  told.duplicate = await failed(Account.create({ owner: 'ann', n: 1 }));
  told.locks = await undone(async transaction => {
    await Account.findOne({ where: { owner: 'ann' }, lock: true, transaction });
    return db.transaction(async t => {
      await db.query('SET innodb_lock_wait_timeout = 0', { transaction: t });
      const code = await failed(Account.findAll({ lock: t.LOCK.UPDATE, transaction: t }));
      await db.query('SET innodb_lock_wait_timeout = 50', { transaction: t });  // its connection is used again
      return [code];
    });
  });
  told.tries = await tried();
  told['in the end'] = await all();
  await db.close();
  console.log(JSON.stringify(told));
}
main().catch(error => { console.error(error); process.exit(1); });

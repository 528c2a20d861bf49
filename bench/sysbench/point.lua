-- Point reads by one integer key, as sysbench sends them: the table is made elsewhere, or is a view.
--   --text=on sends the text every time instead of executing a prepared statement.
--   --noria-query takes the statement with one `?`; --rows is the number of keys.

sysbench.cmdline.options = {
   rows = {"Keys are drawn from 1 to this", 10000},
   noria_query = {"Statement with one ? for the key", "SELECT id, title, votes FROM stories WHERE id = ?"},
   text = {"Send the text with the key in it instead of executing a prepared statement", false},
}

function thread_init()
   con = sysbench.sql.driver():connect()
   if not sysbench.opt.text then
      statement = con:prepare(sysbench.opt.noria_query)
      key = statement:bind_create(sysbench.sql.type.BIGINT)
      statement:bind_param(key)
   end
end

function event()
   local id = sysbench.rand.uniform(1, sysbench.opt.rows)
   if sysbench.opt.text then
      con:query((sysbench.opt.noria_query:gsub("?", tostring(id))))
   else
      key:set(id)
      statement:execute():free()
   end
end

function thread_done()
   if not sysbench.opt.text then
      statement:close()
   end
   con:disconnect()
end

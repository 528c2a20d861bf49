-- The story-and-vote workload: reads of a story with its vote count, single inserts of votes, and mixes.
-- bench/mysql.py gives the statements; the same script drives Noria and MariaDB.
-- Stories are drawn from a Zipf distribution (a few are read and voted for most), each thread from its own seed.

sysbench.cmdline.options = {
   workload = {"read, insert or mix", "read"},
   query = {"The read; its one ? is a story id", ""},
   keys = {"Stories 1..keys", 40000},
   skew = {"Exponent of the Zipf distribution; 0 is uniform", 1.08},
   prepared = {"Prepare the statements on the server", true},
   writes = {"Per cent of writes in a mix", 5},
   counted = {"Keep the count in the story's row too, in one transaction with the vote", false},
   users = {"First user number of this run's votes, so that no vote exists already", 1000000000}
}

local opt, cdf

local function prepare_distribution()
   if opt.skew == 0 then return end
   cdf = {}
   local sum = 0
   for i = 1, opt.keys do
      sum = sum + 1 / i ^ opt.skew
      cdf[i] = sum
   end
end

local function story()
   if not cdf then return sysbench.rand.uniform(1, opt.keys) end
   local u = sysbench.rand.uniform_double() * cdf[opt.keys]
   local low, high = 1, opt.keys
   while low < high do
      local middle = math.floor((low + high) / 2)
      if cdf[middle] < u then low = middle + 1 else high = middle end
   end
   return low
end

-- A function of integer arguments that runs the statement, prepared or as text.
local function statement(connection, text, arguments, has_rows)
   if not opt.prepared then
      local format = text:gsub("%?", "%%d")
      return function(...)
         if has_rows then
            connection:query(string.format(format, ...)):free()
         else
            connection:query(string.format(format, ...))
         end
      end
   end
   local prepared = connection:prepare(text)
   local slots = {}
   for i = 1, arguments do slots[i] = prepared:bind_create(sysbench.sql.type.BIGINT) end
   prepared:bind_param(unpack(slots))
   return function(...)
      for i = 1, arguments do slots[i]:set((select(i, ...))) end
      local rows = prepared:execute()
      if has_rows then rows:free() end
   end
end

local connection, read, insert, count, user

function thread_init()
   opt = sysbench.opt
   prepare_distribution()
   connection = sysbench.sql.driver():connect()
   -- 10 million votes a thread before two threads could use the same user
   user = opt.users + sysbench.tid * 10000000
   if opt.workload ~= "insert" then read = statement(connection, opt.query, 1, true) end
   if opt.workload ~= "read" then
      insert = statement(connection, "INSERT INTO votes (story_id, user) VALUES (?, ?)", 2)
      if opt.counted then
         count = statement(connection, "UPDATE counted SET vcount = vcount + 1 WHERE id = ?", 1)
      end
   end
end

local function vote()
   local id = story()
   user = user + 1
   if opt.counted then connection:query("BEGIN") end
   insert(id, user)
   if opt.counted then
      count(id)
      connection:query("COMMIT")
   end
end

function event()
   if opt.workload == "read" then
      read(story())
   elseif opt.workload == "insert" then
      vote()
   elseif sysbench.rand.uniform(1, 100) <= opt.writes then
      vote()
   else
      read(story())
   end
end

function thread_done()
   connection:disconnect()
end

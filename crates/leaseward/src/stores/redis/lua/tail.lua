-- Every operation for itself: what fails, fails alone, and its error is its answer.
local time = redis.call('TIME')
local out = {}
local turn = {
  now = tonumber(time[1]) * 1000000 + tonumber(time[2]), now_text = false,
  side = ARGV[1], client = ARGV[2], handover = ARGV[3], stride = tonumber(ARGV[4]),
  at = 5, k = 2, out = out, n = 0,
  beside_ms = 0, last = false, is_written = false, is_ahead = false, left_behind = false, ops = false,
  answer = answer, stands_beside = stands_beside, text = text, last_fence = last_fence, reserve = reserve, lease = lease,
  owner = owner, next_key = next_key,
  join = join, pass_on = pass_on, records = records, library = library, slow_operations = slow_operations, slow = slow,
}

local count = #ARGV
while turn.at <= count do
  local letter = string.byte(ARGV[turn.at])
  turn.at = turn.at + 1
  local before, ok, failure = turn.n, nil, nil
  if letter == 97 or letter == 113 or letter == 65 or letter == 81 then
    ok, failure = pcall(ask, turn, letter)
  elseif letter == 114 then
    ok, failure = pcall(release, turn)
  elseif letter == 110 then
    ok, failure = pcall(renew, turn)
  elseif letter == 108 then
    ok, failure = pcall(turn.slow(turn).look)
  else
    ok, failure = pcall(turn.slow(turn).break_lease)
  end
  if not ok then
    for i = before + 1, turn.n do
      out[i] = nil
    end
    turn.n = before
    answer(turn, @FAILED, type(failure) == 'table' and failure.err or tostring(failure))
  end
end

if turn.beside_ms > 0 then
  local lasts = redis.pcall('PTTL', turn.side .. 'beside')
  if type(lasts) ~= 'number' or lasts < turn.beside_ms then
    -- Twice as long as it has to last, so that it is written seldom. Never the first write of a call, which may be refused.
    redis.pcall('SET', turn.side .. 'beside', '', 'PX', 2 * turn.beside_ms)
  end
end
if turn.is_ahead then
  redis.call('SET', KEYS[1], text(turn.last))
end
return out

-- JobSubmitPlugins=lua of slurm.conf, this file beside it: jobs that were not submitted with `carbontui submit` join the
-- fleet as well. A batch job with a time limit and no comment or start of its own is taken to need its whole limit, to be
-- done within SLACK times that, and waits WAIT_S for the fleet to plan it (one slot of `carbontui fleet`, and a bit).
-- If no fleet runs it starts then. Its watts are those of `fleet --gpu-w --node-w`. Its owner may start it at once:
-- scontrol update JobId=ID StartTime=now
local SLACK, WAIT_S, LONGEST_MIN = 2, 1920, 7 * 24 * 60

function slurm_job_submit(job, partitions, uid)
    local minutes = job.time_limit
    local own = (job.comment ~= nil and job.comment ~= "") or (job.begin_time ~= nil and job.begin_time > 0)
    if job.script == nil or job.script == "" or own or minutes == nil or minutes > LONGEST_MIN then
        return slurm.SUCCESS
    end
    local now = os.time()
    job.begin_time = now + WAIT_S
    job.comment = string.format(
        'carbontui:{"work_s":%d,"deadline":"%s","begin":"%s"}',
        minutes * 60,
        os.date("!%Y-%m-%dT%H:%M:%SZ", now + WAIT_S + SLACK * minutes * 60),
        os.date("!%Y-%m-%dT%H:%M:%SZ", now + WAIT_S)
    )
    return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
    return slurm.SUCCESS
end

return slurm.SUCCESS

import time
def test_x(cluster):
    assert cluster.must("n1", "hostname").strip() == "n1"
    j = cluster.submit("hostname", "--gres=mps:50")
    time.sleep(2)
    assert cluster.exec("ctl", ("cat", f"/home/alice/slurm-{j}.out"), user="alice").stdout.strip() == "n1"
    assert cluster.node_state("n1") == "IDLE"
    print(cluster.break_("n1", "gpu-lost"), cluster.mend("n1"))
